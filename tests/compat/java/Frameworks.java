import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.streams.KafkaStreams;

/** Word counts of Kafka Streams and workers of Kafka Connect, each with settings of its own, in one JVM. */
public final class Frameworks {
    private static final Map<String, Runnable> RUNNING = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        Lines.serve(Frameworks::act);
    }

    private static JsonNode act(JsonNode request) {
        String name = Lines.text(request, "session");
        switch (Lines.text(request, "verb")) {
            case "count" -> {
                Properties settings = new Properties();
                settings.putAll(Lines.settings(request));
                KafkaStreams streams =
                    WordCount.of(settings, Lines.text(request, "source"), Lines.text(request, "target"));
                RUNNING.put(name, streams::close);
                streams.start();
            }
            case "connect" -> {
                Connect<?> worker = new ConnectDistributed().startConnect(Lines.settings(request));
                RUNNING.put(name, () -> {
                    worker.stop();
                    worker.awaitStop();
                });
            }
            case "stop" -> RUNNING.remove(name).run();
            default -> throw new IllegalArgumentException(request.toString());
        }
        return Lines.JSON.nullNode();
    }
}
