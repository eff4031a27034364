import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;

/**
 * Runs a file of commands against a running broker and writes, for each "describe", the answer as
 * one line per entry: name, value, source, read-only, sensitive, type, synonyms. Commands:
 * "topic NAME", "set|delete|append|subtract TYPE NAME KEY VALUE" (NAME "-" for empty; the answer
 * follows as "> ..."), "describe TYPE NAME FILE".
 * Usage: java -cp 'KAFKA/libs/*' ConfigDescribe.java SERVER COMMANDS DIRECTORY
 */
public class ConfigDescribe {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        StringBuilder out = new StringBuilder();
        try (Admin admin = Admin.create(properties)) {
            for (String line : Files.readAllLines(Path.of(args[1]))) {
                if (line.startsWith("> ")) continue;
                out.append(line).append("\n");
                if (line.isBlank() || line.startsWith("#")) continue;
                String[] words = line.split(" ", 5);
                switch (words[0]) {
                    case "topic":
                        NewTopic topic = new NewTopic(words[1], 1, (short) 1);
                        admin.createTopics(List.of(topic)).all().get();
                        Thread.sleep(1000);
                        break;
                    case "describe":
                        describe(admin, resource(words), Path.of(args[2], words[3]));
                        break;
                    default:
                        out.append("> ").append(alter(admin, words)).append("\n");
                }
            }
        }
        Files.writeString(Path.of(args[1]), out.toString());
        System.exit(0);
    }

    private static ConfigResource resource(String[] words) {
        String name = words[2].equals("-") ? "" : words[2];
        return new ConfigResource(ConfigResource.Type.valueOf(words[1]), name);
    }

    private static String alter(Admin admin, String[] words) throws Exception {
        ConfigEntry entry = new ConfigEntry(words[3], words.length < 5 ? "" : words[4]);
        AlterConfigOp op = new AlterConfigOp(entry, OpType.valueOf(words[0].toUpperCase()));
        try {
            admin.incrementalAlterConfigs(Map.of(resource(words), List.of(op))).all().get();
            Thread.sleep(500);
            return "ok";
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            return Errors.forException(cause).name() + " " + cause.getMessage();
        }
    }

    private static void describe(Admin admin, ConfigResource resource, Path file) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        List<ConfigEntry> entries = new ArrayList<>(
            admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries());
        entries.sort(Comparator.comparing(ConfigEntry::name));
        try (PrintStream out = new PrintStream(file.toFile(), StandardCharsets.UTF_8)) {
            for (ConfigEntry entry : entries) {
                String synonyms = entry.synonyms().stream()
                    .map(one -> one.source() + ":" + one.name() + "=" + one.value())
                    .collect(Collectors.joining("; "));
                out.print(String.join("\t", entry.name(), String.valueOf(entry.value()),
                    entry.source().name(), entry.isReadOnly() ? "read-only" : "-",
                    entry.isSensitive() ? "sensitive" : "-",
                    entry.type().name(), synonyms) + "\n");
            }
        }
    }
}
