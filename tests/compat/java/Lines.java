import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * A program that answers requests, each a line of JSON {"id", "verb", ...}; an answer is {"id", "result"} or
 * {"id", "error"}. Each request has a thread of its own.
 */
final class Lines {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Act {
        JsonNode on(JsonNode request) throws Exception;
    }

    static void serve(Act act) throws IOException {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            new Thread(() -> answer(request, act)).start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(JsonNode request, Act act) {
        ObjectNode said = JSON.createObjectNode();
        said.set("id", request.get("id"));
        try {
            said.set("result", act.on(request));
        } catch (Exception problem) {
            said.put("error", told(problem));
        }
        synchronized (JSON) {
            System.out.println(said);
            System.out.flush();
        }
    }

    private static String told(Throwable problem) {
        return problem.getCause() == null ? problem.toString() : problem + ", " + told(problem.getCause());
    }

    static String text(JsonNode request, String field) {
        return request.get(field).asText();
    }

    /** The settings of the request; tokens may come from where they say. */
    static Map<String, String> settings(JsonNode request) {
        Map<String, String> settings = new HashMap<>();
        request.get("settings").fields().forEachRemaining(row -> settings.put(row.getKey(), row.getValue().asText()));
        String endpoint = settings.get("sasl.oauthbearer.token.endpoint.url");
        if (endpoint != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", endpoint);
        }
        return settings;
    }
}
