import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Kafka's side of the proof that both encode alike. Reads messages that were encoded by the other
 * side, decodes them with Kafka's own classes, encodes them again and compares. Then fills Kafka's
 * classes at random and writes them, encoded in one version and, decoded from that, in another one.
 *
 * Arguments: the file of the other side, the file to write, a seed, how many of each shape.
 */
public class CrossProof {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };
    private static final int NULL = 0, EMPTY = 1, MAXIMAL = 2, SHAPES = 4;
    private static final int STRING_MAX = 32767;

    private final Random random;
    private int shape;
    private int longLeft;

    private CrossProof(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, short[]> versions = new TreeMap<>();
        int faults = check(Path.of(arguments[0]), versions);
        for (Map.Entry<String, short[]> entry : versions.entrySet()) {
            Class<?> type = find(entry.getKey());
            short first = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            short last = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            if (entry.getValue()[0] != first || entry.getValue()[1] != last) {
                System.out.println(entry.getKey() + " has versions " + first + " to " + last);
                faults++;
            }
        }
        CrossProof proof = new CrossProof(Long.parseLong(arguments[2]));
        int rounds = Integer.parseInt(arguments[3]);
        try (DataOutputStream out = new DataOutputStream(
                new BufferedOutputStream(Files.newOutputStream(Path.of(arguments[1]))))) {
            for (Map.Entry<String, short[]> entry : versions.entrySet()) {
                proof.generate(out, entry.getKey(), rounds);
            }
        }
        System.out.println("faults " + faults);
    }

    /** Decodes and encodes again what the other side wrote. */
    private static int check(Path path, Map<String, short[]> versions) throws Exception {
        int faults = 0;
        int messages = 0;
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(Files.newInputStream(path)))) {
            while (true) {
                String name;
                try {
                    name = in.readUTF();
                } catch (EOFException end) {
                    break;
                }
                short version = in.readShort();
                byte[] bytes = in.readNBytes(in.readInt());
                messages++;
                short[] range = versions.computeIfAbsent(name, n -> new short[] {version, version});
                range[0] = (short) Math.min(range[0], version);
                range[1] = (short) Math.max(range[1], version);
                String fault = fault(name, version, bytes);
                if (fault != null) {
                    faults++;
                    if (faults < 20) {
                        System.out.println(name + " " + version + ": " + fault);
                    }
                }
            }
        }
        System.out.println("checked " + messages);
        return faults;
    }

    private static String fault(String name, short version, byte[] bytes) {
        try {
            Message message = create(find(name));
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return buffer.remaining() + " bytes are left";
            }
            return Arrays.equals(bytes, encode(message, version)) ? null : "the bytes differ";
        } catch (Exception error) {
            return error.toString();
        }
    }

    private static byte[] encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = message.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size);
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("Kafka's own size is wrong");
        }
        return buffer.array();
    }

    private void generate(DataOutputStream out, String name, int rounds) throws Exception {
        Class<?> type = find(name);
        Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
        short first = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
        for (short version = first; version < schemas.length; version++) {
            for (int round = 0; round < rounds * SHAPES; round++) {
                shape = round % SHAPES;
                longLeft = 2;
                Message message = create(type);
                fill(message, schemas[version], 0);
                byte[] bytes = encode(message, version);
                short other = (short) (first + random.nextInt(schemas.length - first));
                out.writeUTF(name);
                out.writeShort(version);
                out.writeInt(bytes.length);
                out.write(bytes);
                out.writeShort(other);
                byte[] recoded = recode(type, bytes, version, other);
                out.writeInt(recoded == null ? -1 : recoded.length);
                if (recoded != null) {
                    out.write(recoded);
                }
            }
        }
    }

    /** The message in another version, or null if that cannot carry it. */
    private static byte[] recode(Class<?> type, byte[] bytes, short from, short to)
            throws Exception {
        Message message = create(type);
        message.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), from);
        try {
            return encode(message, to);
        } catch (RuntimeException error) {
            return null;
        }
    }

    private void fill(Object message, Schema schema, int depth) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                Map<Integer, Field> tags = ((TaggedFields) bound.def.type).fields();
                for (Field field : tags.values()) {
                    if (shape == MAXIMAL || shape == NULL
                            || shape != EMPTY && random.nextBoolean()) {
                        set(message, field, depth);
                    }
                }
                addUnknown((Message) message, tags);
            } else {
                set(message, bound.def, depth);
            }
        }
    }

    private void addUnknown(Message message, Map<Integer, Field> tags) {
        if (shape == EMPTY || random.nextInt(4) != 0) {
            return;
        }
        int tag = 20;
        for (int known : tags.keySet()) {
            tag = Math.max(tag, known);
        }
        for (int count = random.nextInt(3); count > 0; count--) {
            tag += 1 + random.nextInt(3000);
            byte[] bytes = new byte[random.nextInt(20)];
            random.nextBytes(bytes);
            message.unknownTaggedFields().add(new RawTaggedField(tag, bytes));
        }
    }

    private void set(Object message, Field field, int depth) throws Exception {
        Method setter = setter(message.getClass(), field.name);
        Type declared = setter.getGenericParameterTypes()[0];
        setter.invoke(message, value(declared, field.type, depth));
    }

    private static Method setter(Class<?> type, String name) {
        StringBuilder camel = new StringBuilder("set");
        for (String word : name.split("_")) {
            camel.append(Character.toUpperCase(word.charAt(0))).append(word.substring(1));
        }
        for (Method method : type.getMethods()) {
            // Not equals: kraft_version is setKRaftVersion.
            if (method.getName().equalsIgnoreCase(camel.toString())
                    && method.getParameterCount() == 1) {
                return method;
            }
        }
        throw new IllegalStateException(type + " has no " + camel);
    }

    private Object value(Type declared, org.apache.kafka.common.protocol.types.Type type, int depth)
            throws Exception {
        if (type.isNullable() && shape != EMPTY && shape != MAXIMAL
                && (shape == NULL || random.nextInt(4) == 0)) {
            return null;
        }
        if (declared instanceof ParameterizedType list) {
            List<Object> values = new ArrayList<>();
            elements(values, list.getActualTypeArguments()[0], type, depth);
            return values;
        }
        Class<?> plain = (Class<?>) declared;
        if (Collection.class.isAssignableFrom(plain)) {
            @SuppressWarnings("unchecked")
            Collection<Object> values = (Collection<Object>) plain.getConstructor().newInstance();
            Type parent = plain.getGenericSuperclass();
            elements(values, ((ParameterizedType) parent).getActualTypeArguments()[0], type, depth);
            return values;
        }
        if (Message.class.isAssignableFrom(plain)) {
            Object message = plain.getConstructor().newInstance();
            fill(message, (Schema) type, depth + 1);
            return message;
        }
        return scalar(plain, type.toString());
    }

    private void elements(Collection<Object> values, Type declared,
            org.apache.kafka.common.protocol.types.Type type, int depth) throws Exception {
        if (shape == EMPTY) {
            return;
        }
        int most = depth > 2 || shape == NULL ? 1 : 3;
        for (int count = random.nextInt(most + 1); count > 0; count--) {
            values.add(value(declared, type.arrayElementType().get(), depth));
        }
    }

    private Object scalar(Class<?> type, String name) {
        if (type == boolean.class) {
            return random.nextBoolean();
        } else if (type == byte.class || type == Byte.class) {
            return (byte) integer(8);
        } else if (type == short.class || type == Short.class) {
            return (short) integer(16);
        } else if (type == int.class || type == Integer.class) {
            return name.equals("UINT16") ? (int) integer(16) & 0xffff : (int) integer(32);
        } else if (type == long.class || type == Long.class) {
            return name.equals("UINT32") ? integer(32) & 0xffffffffL : integer(64);
        } else if (type == double.class) {
            return random.nextInt() / 1024.0;
        } else if (type == Uuid.class) {
            return new Uuid(integer(64), integer(64));
        } else if (type == String.class) {
            return text();
        }
        byte[] bytes = new byte[length()];
        random.nextBytes(bytes);
        if (type == byte[].class) {
            return bytes;
        } else if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes);
        }
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
    }

    private long integer(int bits) {
        int choice = random.nextInt(4);
        if (shape == EMPTY || shape != MAXIMAL && choice == 0) {
            return 0;
        } else if (shape == MAXIMAL && choice < 2) {
            return (1L << (bits - 1)) - 1;
        } else if (shape == MAXIMAL && choice == 2) {
            return 1L << (bits - 1);
        }
        return random.nextLong();
    }

    private String text() {
        int bytes = length();
        if (bytes == STRING_MAX) {
            return "語".repeat(bytes / 3) + "x".repeat(bytes % 3);
        }
        StringBuilder text = new StringBuilder();
        int used = 0;
        while (used < bytes) {
            int choice = random.nextInt(20);
            String letter = choice == 0 && bytes - used >= 2 ? "é"
                : choice == 1 && bytes - used >= 3 ? "語"
                : choice == 2 && bytes - used >= 4 ? "😀"
                : "abc".substring(choice % 3, choice % 3 + 1);
            used += letter.getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
            text.append(letter);
        }
        return text.toString();
    }

    private int length() {
        if (shape == EMPTY) {
            return 0;
        }
        if (shape == MAXIMAL && longLeft > 0) {
            longLeft--;
            return STRING_MAX;
        }
        return random.nextInt(random.nextInt(20) == 0 ? 300 : 12);
    }

    private static final Map<String, Class<?>> CLASSES = new HashMap<>();

    private static Class<?> find(String name) throws ClassNotFoundException {
        Class<?> known = CLASSES.get(name);
        if (known != null) {
            return known;
        }
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    Class<?> type = Class.forName(prefix + name + suffix);
                    CLASSES.put(name, type);
                    return type;
                } catch (ClassNotFoundException next) {
                    // It is in another package, or has the other kind of name.
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Message create(Class<?> type) throws Exception {
        return (Message) type.getConstructor().newInstance();
    }
}
