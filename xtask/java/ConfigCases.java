import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.server.ControllerConfigurationValidator;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Asks Apache Kafka what it says to wrong configuration, and writes the answers into the file of
 * cases, whose blocks are parted by blank lines: lines "+ key=value" and "- key" change the file
 * that each case starts from (the first block), "= key=value" is what is to be altered, "old
 * key=value" what stood there before, and the last line, "> answer", is written by this program.
 * Usage: java -cp 'KAFKA/libs/*' ConfigCases.java (server|topic|broker|default) FILE
 */
public class ConfigCases {
    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[1]);
        String[] blocks = Files.readString(file).strip().split("\n\n+");
        StringBuilder out = new StringBuilder(blocks[0]).append("\n");
        for (int i = 1; i < blocks.length; i++) {
            Case one = new Case(blocks[0], blocks[i]);
            String answer;
            try {
                answer = one.run(args[0]);
            } catch (Throwable error) {
                answer = args[0].equals("server")
                    ? String.valueOf(error.getMessage()) : named(error, args[0]);
            }
            answer = answer.replace("\n", "\\n");
            out.append("\n").append(one.text).append("> ").append(answer).append("\n");
        }
        Files.writeString(file, out.toString());
        System.exit(0);
    }

    private static String named(Throwable error, String kind) {
        boolean invalidConfig = error instanceof ConfigException && kind.equals("topic");
        Throwable sent = error instanceof ApiException || invalidConfig ? error
            : new InvalidRequestException(error.getMessage());
        Errors code = invalidConfig ? Errors.INVALID_CONFIG : Errors.forException(sent);
        return code.name() + " " + sent.getMessage();
    }

    private static class Case {
        final Properties server = new Properties();
        final Properties altered = new Properties();
        final Map<String, String> old = new HashMap<>();
        final StringBuilder text = new StringBuilder();

        Case(String base, String block) throws Exception {
            server.load(new StringReader(base));
            for (String line : block.split("\n")) {
                if (line.startsWith("> ")) continue;
                text.append(line).append("\n");
                Properties one = new Properties();
                if (line.startsWith("- ")) server.remove(line.substring(2));
                else if (line.startsWith("+ ")) server.load(new StringReader(line.substring(2)));
                else if (line.startsWith("= ")) altered.load(new StringReader(line.substring(2)));
                else if (line.startsWith("old ")) {
                    one.load(new StringReader(line.substring(4)));
                    one.forEach((key, value) -> old.put((String) key, (String) value));
                } else throw new IllegalArgumentException(line);
            }
        }

        String run(String kind) {
            KafkaConfig config = KafkaConfig.fromProps(server, false);
            switch (kind) {
                case "server":
                    return "ok";
                case "topic":
                    Map<String, String> fresh = new HashMap<>();
                    altered.forEach((key, value) -> fresh.put((String) key, (String) value));
                    new ControllerConfigurationValidator(config).validate(
                        new ConfigResource(ConfigResource.Type.TOPIC, "topic"), fresh, old);
                    return "ok";
                default:
                    config.dynamicConfig().initialize(scala.Option.empty());
                    config.dynamicConfig().validate(altered, kind.equals("broker"));
                    return "ok";
            }
        }
    }
}
