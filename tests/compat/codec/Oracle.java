import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Writes messages with Kafka's own classes. One line in, "name version json"; one line out: the bytes as hex, or
 * "absent" where this Kafka has no such class or version, or "error" and why.
 */
public final class Oracle {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.");

    private record Kind(MethodHandle read, short lowest, short highest) {
    }

    private final Map<String, Kind> kinds = new HashMap<>();
    private final ObjectMapper json = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Oracle oracle = new Oracle();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var out = new PrintStream(System.out, false, StandardCharsets.UTF_8)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                out.println(oracle.answer(line.split(" ", 3)));
            }
        }
    }

    private String answer(String[] asked) {
        short version = Short.parseShort(asked[1]);
        try {
            Kind kind = kinds.computeIfAbsent(asked[0], Oracle::find);
            if (kind.read == null || version < kind.lowest || version > kind.highest) {
                return "absent";
            }
            return HexFormat.of().formatHex(bytes((Message) kind.read.invoke(json.readTree(asked[2]), version), version));
        } catch (Throwable wrong) {
            return "error " + wrong.toString().replace('\n', ' ');
        }
    }

    private static byte[] bytes(Message message, short version) {
        var cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("wrote " + buffer.position() + " of " + buffer.limit() + " bytes");
        }
        return buffer.array();
    }

    private static Kind find(String name) {
        for (String home : PACKAGES) {
            for (String ending : List.of("Data", "")) {
                try {
                    Class<?> message = Class.forName(home + name + ending);
                    Class<?> converter = Class.forName(home + name + ending + "JsonConverter");
                    MethodHandle read = MethodHandles.lookup().findStatic(
                        converter, "read", MethodType.methodType(message, JsonNode.class, short.class));
                    var empty = (Message) message.getDeclaredConstructor().newInstance();
                    return new Kind(read, empty.lowestSupportedVersion(), empty.highestSupportedVersion());
                } catch (ReflectiveOperationException elsewhere) {
                    continue;
                }
            }
        }
        return new Kind(null, (short) 0, (short) -1);
    }
}
