import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sessions of the Java clients, each with credentials of its own: a request is a line of JSON {"id", "verb",
 * "session", ...}, an answer {"id", "result"} or {"id", "error"}.
 */
public final class Logins {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static final Map<String, Session> SESSIONS = new ConcurrentHashMap<>();

    private static final class Session {
        final Map<String, Object> settings;
        final KafkaProducer<String, String> producer;
        KafkaConsumer<String, String> consumer;

        Session(Map<String, Object> settings) {
            this.settings = settings;
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        }

        synchronized JsonNode poll(String topic, String group) {
            if (consumer == null) {
                Map<String, Object> reading = new HashMap<>(settings);
                reading.put("group.id", group);
                reading.put("auto.offset.reset", "earliest");
                consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                consumer.subscribe(List.of(topic));
            }
            ArrayNode found = JSON.createArrayNode();
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                found.add(record.value());
            }
            return found;
        }

        JsonNode brokers() throws Exception {
            ArrayNode found = JSON.createArrayNode();
            try (Admin admin = Admin.create(settings)) {
                for (Node node : admin.describeCluster().nodes().get()) {
                    found.add(node.id());
                }
            }
            return found;
        }

        synchronized void close() {
            producer.close();
            if (consumer != null) {
                consumer.close();
            }
        }
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            new Thread(() -> answer(request)).start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(JsonNode request) {
        ObjectNode said = JSON.createObjectNode();
        said.set("id", request.get("id"));
        try {
            said.set("result", act(request));
        } catch (Exception problem) {
            said.put("error", problem + (problem.getCause() == null ? "" : ", " + problem.getCause()));
        }
        synchronized (JSON) {
            System.out.println(said);
            System.out.flush();
        }
    }

    private static JsonNode act(JsonNode request) throws Exception {
        String name = text(request, "session");
        if (text(request, "verb").equals("open")) {
            SESSIONS.put(name, new Session(settings(request)));
            return JSON.nullNode();
        }
        Session session = SESSIONS.get(name);
        switch (text(request, "verb")) {
            case "produce" -> session.producer.send(
                new ProducerRecord<>(text(request, "topic"), text(request, "value"))).get();
            case "poll" -> {
                return session.poll(text(request, "topic"), text(request, "group"));
            }
            case "brokers" -> {
                return session.brokers();
            }
            case "close" -> session.close();
            default -> throw new IllegalArgumentException(request.toString());
        }
        return JSON.nullNode();
    }

    private static Map<String, Object> settings(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", text(request, "bootstrap"));
        settings.put("security.protocol", text(request, "protocol"));
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", text(request, "authority"));
        if (!text(request, "certificate").isEmpty()) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", text(request, "certificate"));
        }
        String mechanism = text(request, "mechanism");
        if (!mechanism.isEmpty()) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", module(mechanism) + " required username=\""
                + text(request, "user") + "\" password=\"" + text(request, "password") + "\";");
        }
        return settings;
    }

    private static String module(String mechanism) {
        return MODULES + (mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule");
    }

    private static String text(JsonNode request, String field) {
        return request.get(field).asText();
    }
}
