import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;

/**
 * Writes how Java reads files in the .properties format: one case a line, the bytes of the file and
 * then the pairs "key=value", sorted, all in hexadecimal (the pairs as UTF-16); or "error".
 * Usage: java PropertiesCases.java FILE
 */
public class PropertiesCases {
    private static final String[] FIXED = {
        "", "a=b", "a = b ", "a:b", "a b", "a\tb", "a", "a=", "=b", " \t\fa=b",
        "# comment\na=b", "! comment\na=b", "a=b#c", "a\\=b=c", "a\\:b:c", "a\\ b c", "a=\\\\b",
        "a=b\\\nc", "a=b\\\n   c", "a=b\\\r\nc", "a=b\\\rc", "a=b\rc=d", "a=b\r\nc=d",
        "a=b\\\n#c", "# x\\\na=b", "a=\\u0041", "a=\\u00e9\\u20AC", "\\u0061=b",
        "a=\\ud83d\\ude00", "a=\\u12", "a=\\u12g4", "a=\\x\\y\\\"", "a=\\t\\n\\r\\f", "a=b\\",
        "\\", "\\\n", "\\\na=b", "a\\", "a = = b", "a == b", "a : = b", "a=b\na=c",
        "a=\u00e9\u00ff", "\n\n  \n a=b", "a=b\\\\\nc=d", "a=b\\\\\\\nc=d", "a\\\n=b",
        "a\\\n b=c", "a=\\\n\\\nb", "a=\\\n\n", "a=b\\\n", "\\\n\\\n\\\nx", "\\#a=b", "\\!a=b",
        "a=b\0c", "key with spaces=x",
    };

    public static void main(String[] args) throws Exception {
        List<byte[]> files = new ArrayList<>();
        for (String text : FIXED) files.add(text.getBytes(StandardCharsets.ISO_8859_1));
        Random random = new Random(7);
        String alphabet = "ab=: \t\f\\\\\\\n\n\r#!u0\u00e9";
        for (int i = 0; i < 400; i++) {
            byte[] file = new byte[random.nextInt(24)];
            for (int j = 0; j < file.length; j++) {
                file[j] = (byte) alphabet.charAt(random.nextInt(alphabet.length()));
            }
            files.add(file);
        }
        StringBuilder out = new StringBuilder();
        for (byte[] file : files) {
            String line = HexFormat.of().formatHex(file) + " " + answer(file);
            out.append(line.strip()).append("\n");
        }
        Files.writeString(Path.of(args[0]), out.toString());
    }

    private static String answer(byte[] file) {
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(file));
        } catch (Exception error) {
            return "error " + error.getMessage();
        }
        StringBuilder out = new StringBuilder();
        new TreeMap<>(properties).forEach((key, value) ->
            out.append(hex(key)).append("=").append(hex(value)).append(" "));
        return out.toString().strip();
    }

    private static String hex(Object text) {
        return HexFormat.of().formatHex(((String) text).getBytes(StandardCharsets.UTF_16BE));
    }
}
