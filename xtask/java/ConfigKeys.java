import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Writes the facts of every configuration key of Apache Kafka as text tables, one file per kind of
 * resource, one line per key, in the order of definition (in which
 * Kafka checks them). Only facts are taken (names, types, defaults, rules),
 * no documentation. Usage: java -cp 'KAFKA/libs/*' ConfigKeys.java OUTPUT_DIRECTORY
 */
public class ConfigKeys {
    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        Files.createDirectories(directory);
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        ConfigDef broker = AbstractKafkaConfig.CONFIG_DEF;
        write(directory, "broker", broker, modes, ConfigKeys::brokerSynonyms);
        write(directory, "broker-dynamic", QuotaConfig.brokerQuotaConfigs(), modes, name -> "");
        write(directory, "topic", LogConfig.configDefCopy(), Map.of(), ConfigKeys::topicSynonyms);
        write(directory, "group", GroupConfig.CONFIG_DEF, Map.of(), ConfigKeys::groupSynonyms);
        write(directory, "client-metrics", ClientMetricsConfigs.configDef(), Map.of(), name -> "");
        ConfigDef clientQuota = QuotaConfig.userAndClientQuotaConfigs();
        write(directory, "client-quota", clientQuota, Map.of(), name -> "");
        write(directory, "ip-quota", QuotaConfig.ipConfigs(), Map.of(), name -> "");
    }

    private static void write(Path directory, String kind, ConfigDef def, Map<String, String> modes,
                              Function<String, String> synonyms) throws Exception {
        File file = directory.resolve(kind + ".txt").toFile();
        try (PrintStream out = new PrintStream(file, StandardCharsets.UTF_8)) {
            out.print("# Written by `cargo xtask config-keys` from the classes of Apache Kafka"
                + " 4.4.0; not edited.\n");
            out.print("# name\ttype\tdefault\trule\timportance\tupdate mode\tsynonyms\n");
            for (ConfigDef.ConfigKey key : def.configKeys().values()) {
                String mode = modes.getOrDefault(key.name, "read-only");
                String internal = key.internalConfig ? ",internal" : "";
                out.print(String.join("\t", key.name, key.type.name(), defaultOf(key),
                    ruleOf(key.validator), key.importance.name() + internal, mode,
                    orDash(synonyms.apply(key.name))) + "\n");
            }
        }
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        if (!key.hasDefault()) return "required";
        if (key.defaultValue == null) return "null";
        String text = key.defaultValue instanceof Password password ? password.value()
            : ConfigDef.convertToString(key.defaultValue, key.type);
        if (text.contains("\t") || text.contains("\n")) throw new IllegalStateException(key.name);
        return "=" + text;
    }

    private static String ruleOf(ConfigDef.Validator validator) throws Exception {
        if (validator == null) return "any";
        String name = validator.getClass().getSimpleName();
        switch (name) {
            case "Range":
                return "range " + text(field(validator, "min")) + " "
                    + text(field(validator, "max"));
            case "ValidString":
                return "one-of " + join(field(validator, "validStrings"));
            case "CaseInsensitiveValidString":
                return "one-of-any-case " + join(field(validator, "validStrings"));
            case "ValidList":
                return "list "
                    + ((Boolean) field(validator, "isEmptyAllowed") ? "empty" : "filled") + " "
                    + ((Boolean) field(validator, "isNullAllowed") ? "null" : "set") + " "
                    + orDash(join(field(field(validator, "validString"), "validStrings")));
            case "NonEmptyString":
                return "non-empty";
            case "NonNullValidator":
                return "non-null";
            case "LambdaValidator":
                if (validator.toString().equals("[1,...,9] or -1")) return "gzip-level";
                break;
            case "ThrottledReplicaListValidator":
                return "throttled-replicas";
            case "ControllerQuorumVotersValidator":
                return "quorum-voters";
            case "ControllerQuorumBootstrapServersValidator":
                return "quorum-bootstrap-servers";
            case "Validator":
                if (validator.getClass().getName().contains("ShareGroupAutoOffsetReset"))
                    return "share-auto-offset-reset";
                break;
            default:
        }
        throw new IllegalStateException("no word for the rule " + validator.getClass());
    }

    private static Object field(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private static String orDash(String text) {
        return text.isEmpty() ? "-" : text;
    }

    private static String text(Object number) {
        return number == null ? "-" : number.toString();
    }

    private static String join(Object strings) {
        return ((Collection<?>) strings).stream().map(Object::toString)
            .collect(Collectors.joining(","));
    }

    private static String brokerSynonyms(String name) {
        List<String> names = DynamicBrokerConfig.brokerConfigSynonyms(name, true);
        return names.equals(List.of(name)) ? "" : String.join(",", names);
    }

    private static String topicSynonyms(String name) {
        List<String> names = new ArrayList<>();
        Map<String, List<ConfigSynonym>> all = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS;
        for (ConfigSynonym synonym : all.getOrDefault(name, List.of())) {
            String factor = synonym.converter().apply("1");
            names.add(synonym.name() + (factor.equals("1") ? "" : "*" + factor));
        }
        return String.join(",", names);
    }

    private static String groupSynonyms(String name) {
        Map<String, Optional<String>> all = GroupConfig.ALL_GROUP_CONFIG_SYNONYMS;
        return all.getOrDefault(name, Optional.empty()).orElse("");
    }
}
