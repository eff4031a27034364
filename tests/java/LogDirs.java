import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartitionReplica;

/**
 * What Apache Kafka's admin client says of log directories, and moves between them.
 *
 * <p>Arguments: the address of a broker, then words. {@code describe} prints a line for each
 * replica: folder, partition, offset lag, "current" or "future"; and one for each folder that has
 * an error. Every other word, {@code TOPIC,PARTITION,FOLDER}, asks for a move of that replica, all
 * in one request; each prints a line with its outcome.
 */
public class LogDirs {
    public static void main(String[] arguments) throws Exception {
        List<String> words = Arrays.asList(arguments).subList(1, arguments.length);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            Map<TopicPartitionReplica, String> moves = new LinkedHashMap<>();
            for (String word : words) {
                String[] parts = word.split(",");
                if (parts.length == 3) {
                    int partition = Integer.parseInt(parts[1]);
                    moves.put(new TopicPartitionReplica(parts[0], partition, 1), parts[2]);
                }
            }
            if (!moves.isEmpty()) {
                AlterReplicaLogDirsResult result = admin.alterReplicaLogDirs(moves);
                for (var entry : result.values().entrySet()) {
                    String outcome = "NONE";
                    try {
                        entry.getValue().get();
                    } catch (ExecutionException failed) {
                        outcome = failed.getCause().getClass().getSimpleName();
                    }
                    TopicPartitionReplica replica = entry.getKey();
                    System.out.println(
                            replica.topic() + "-" + replica.partition() + " " + outcome);
                }
            }
            if (words.contains("describe")) {
                describe(admin);
            }
        }
    }

    static void describe(Admin admin) throws Exception {
        var folders = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        for (var folder : new TreeMap<>(folders).entrySet()) {
            if (folder.getValue().error() != null) {
                String error = folder.getValue().error().getClass().getSimpleName();
                System.out.println(folder.getKey() + " " + error);
            }
            var replicas = folder.getValue().replicaInfos().entrySet();
            List<String> lines = new ArrayList<>();
            for (var replica : replicas) {
                String kind = replica.getValue().isFuture() ? "future" : "current";
                long lag = replica.getValue().offsetLag();
                lines.add(folder.getKey() + " " + replica.getKey() + " " + lag + " " + kind);
            }
            Collections.sort(lines);
            lines.forEach(System.out::println);
        }
    }
}
