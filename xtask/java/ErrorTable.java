import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints every error code of the protocol: code, name, whether it is retriable, message. */
public class ErrorTable {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean again = error.exception() instanceof RetriableException;
            String retriable = again ? "retriable" : "fatal";
            String message = error.exception() == null ? "" : error.message();
            System.out.println(error.code() + "|" + error.name() + "|" + retriable + "|" + message);
        }
    }
}
