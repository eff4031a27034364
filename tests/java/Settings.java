import java.util.HashMap;
import java.util.Map;

/** The settings of a client: the address of a broker, and pairs of keys and values. */
final class Settings {
    private Settings() {
    }

    static Map<String, Object> of(String address, Object... more) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        for (int index = 0; index < more.length; index += 2) {
            settings.put((String) more[index], more[index + 1]);
        }
        return settings;
    }
}
