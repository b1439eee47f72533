import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of the Java clients: a request is a line of JSON {"id", "verb", ...}, an answer {"id",
 * "result"} or {"id", "error", "kind"}, where the kind says what its user must do. A producer lives on
 * between requests under the name it was given.
 */
public final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofSeconds(1);
    private static final Map<String, Opened> PRODUCERS = new ConcurrentHashMap<>();

    private record Opened(KafkaProducer<String, String> producer, List<Future<RecordMetadata>> sent) {
        void send(String topic, int partition, String value) {
            sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
        }

        void flush() throws Exception {
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                try {
                    one.get();
                } catch (ExecutionException failed) {
                    throw (Exception) failed.getCause();
                }
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
            said.put("kind", kind(problem));
        }
        synchronized (JSON) {
            System.out.println(said);
            System.out.flush();
        }
    }

    private static String kind(Throwable problem) {
        for (Throwable one = problem; one != null; one = one.getCause()) {
            if (one instanceof ProducerFencedException
                    || one instanceof OutOfOrderSequenceException
                    || one instanceof AuthorizationException) {
                return "fatal";
            }
        }
        return problem instanceof TimeoutException ? "retriable" : "abortable";
    }

    private static JsonNode act(JsonNode request) throws Exception {
        switch (request.get("verb").asText()) {
            case "open" -> PRODUCERS.put(request.get("producer").asText(), open(request));
            case "read" -> {
                return read(request);
            }
            case "transform" -> transform(request);
            default -> actWith(PRODUCERS.get(request.get("producer").asText()), request);
        }
        return JSON.nullNode();
    }

    private static void actWith(Opened opened, JsonNode request) throws Exception {
        switch (request.get("verb").asText()) {
            case "begin" -> {
                opened.sent().clear();
                opened.producer().beginTransaction();
            }
            case "send" -> {
                String topic = request.get("topic").asText();
                request.get("rows").forEach(row -> opened.send(topic, row.get(0).asInt(), row.get(1).asText()));
                if (request.get("flush").asBoolean()) {
                    opened.flush();
                }
            }
            case "commit" -> opened.producer().commitTransaction();
            case "abort" -> opened.producer().abortTransaction();
            case "close" -> opened.producer().close(Duration.ZERO);
            default -> throw new IllegalArgumentException(request.toString());
        }
    }

    private static Opened open(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", request.get("bootstrap").asText());
        settings.put("transactional.id", request.get("transactional_id").asText());
        if (request.has("timeout_ms")) {
            settings.put("transaction.timeout.ms", request.get("timeout_ms").asInt());
            settings.put("delivery.timeout.ms", 120000);
        }
        settings.put("max.block.ms", 120000);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return new Opened(producer, new ArrayList<>());
    }

    private static KafkaConsumer<String, String> consumer(JsonNode request, String isolation) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", request.get("bootstrap").asText());
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", 7);
        if (request.has("group")) {
            settings.put("group.id", request.get("group").asText());
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** The values of each partition, up to the value "until". */
    private static JsonNode read(JsonNode request) {
        ArrayNode found = JSON.createArrayNode();
        List<TopicPartition> open = new ArrayList<>();
        for (int partition = 0; partition < request.get("partitions").asInt(); partition++) {
            open.add(new TopicPartition(request.get("topic").asText(), partition));
            found.addArray();
        }
        String until = request.get("until").asText();
        try (var consumer = consumer(request, request.get("isolation").asText())) {
            consumer.assign(open);
            consumer.seekToBeginning(open);
            while (!open.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    if (record.value().equals(until)) {
                        open.remove(place);
                    } else if (open.contains(place)) {
                        ((ArrayNode) found.get(record.partition())).add(record.value());
                    }
                }
            }
        }
        return found;
    }

    /** Copies records with their offsets; aborts every third transaction and does it again. */
    private static void transform(JsonNode request) throws Exception {
        String target = request.get("target").asText();
        Opened opened = open(request);
        try (var producer = opened.producer(); var consumer = consumer(request, "read_committed")) {
            consumer.subscribe(List.of(request.get("source").asText()));
            for (int done = 0, turn = 1; done < request.get("count").asInt(); ) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    opened.send(target, record.partition(), record.value());
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    ends.put(place, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                if (turn++ % 3 > 0) {
                    producer.commitTransaction();
                    done += records.count();
                    continue;
                }
                producer.abortTransaction();
                for (TopicPartition place : ends.keySet()) {
                    OffsetAndMetadata committed = consumer.committed(Set.of(place)).get(place);
                    consumer.seek(place, committed == null ? 0 : committed.offset());
                }
            }
        }
    }
}
