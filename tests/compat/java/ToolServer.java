import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, several at once: a request is a line of JSON
 * {"id", "class", "arguments", "stdin"}, an answer {"id", "status", "stdout", "stderr"}.
 *
 * The tools think that they own their process. So each call has its own standard streams (its threads
 * inherit them), an exit ends the call alone, and the tools' own classes are loaded anew for each
 * call, because some count in static fields.
 */
public final class ToolServer {
    private static final class Exited extends Error {
        Exited(int status) {
            super("exit " + status, null, false, false);
        }
    }

    /** What a tool takes for its process; the first exit counts, for a tool may catch its own. */
    private record Process(
            InputStream in,
            PrintStream out,
            PrintStream err,
            AtomicReference<Integer> exit) {}

    private static final InheritableThreadLocal<Process> CALL = new InheritableThreadLocal<>();
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream noise = System.err;
        System.setIn(new RoutedInput());
        System.setOut(new PrintStream(new RoutedOutput(false, noise), true));
        System.setErr(new PrintStream(new RoutedOutput(true, noise), true));
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> { }); // they only wake a tool that is still busy
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            new Thread(() -> serve(request, answers)).start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void exit(int status) {
        CALL.get().exit().compareAndSet(null, status);
        throw new Exited(status);
    }

    private static void serve(JsonNode request, PrintStream answers) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        InputStream in = new ByteArrayInputStream(request.get("stdin").asText().getBytes(StandardCharsets.UTF_8));
        AtomicReference<Integer> exit = new AtomicReference<>();
        CALL.set(new Process(in, new PrintStream(out, true), new PrintStream(err, true), exit));
        int end = call(request);
        int status = exit.get() != null ? exit.get() : end;
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        answer.put("status", status);
        answer.put("stdout", out.toString(StandardCharsets.UTF_8));
        answer.put("stderr", err.toString(StandardCharsets.UTF_8));
        answers.println(answer);
        answers.flush();
    }

    private static int call(JsonNode request) {
        List<String> words = new ArrayList<>();
        request.get("arguments").forEach(word -> words.add(word.asText()));
        try (ToolLoader loader = new ToolLoader()) {
            Thread.currentThread().setContextClassLoader(loader);
            Class<?> tool = loader.loadClass(request.get("class").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) words.toArray(new String[0]));
            return 0;
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
            }
            return 1;
        } catch (ReflectiveOperationException | IOException impossible) {
            impossible.printStackTrace();
            return 2;
        }
    }

    /** Loads the tools' classes itself and leaves the clients', which are stateless, to its parent. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader() throws MalformedURLException {
            super(jars(), ToolServer.class.getClassLoader());
        }

        private static URL[] jars() throws MalformedURLException {
            List<URL> urls = new ArrayList<>();
            for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
                urls.add(new File(path).toURI().toURL());
            }
            return urls.toArray(new URL[0]);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (name.startsWith("org.apache.kafka.tools.")) {
                synchronized (getClassLoadingLock(name)) {
                    Class<?> loaded = findLoadedClass(name);
                    return loaded != null ? loaded : findClass(name);
                }
            }
            return super.loadClass(name, resolve);
        }
    }

    private static final class RoutedInput extends InputStream {
        @Override
        public int read() throws IOException {
            return CALL.get().in().read();
        }

        @Override
        public int read(byte[] into, int from, int length) throws IOException {
            return CALL.get().in().read(into, from, length);
        }
    }

    private static final class RoutedOutput extends OutputStream {
        private final boolean error;
        private final PrintStream otherwise;

        RoutedOutput(boolean error, PrintStream otherwise) {
            this.error = error;
            this.otherwise = otherwise;
        }

        private PrintStream target() {
            Process call = CALL.get();
            return call == null ? otherwise : error ? call.err() : call.out();
        }

        @Override
        public void write(int one) {
            target().write(one);
        }

        @Override
        public void write(byte[] from, int start, int length) {
            target().write(from, start, length);
        }

        @Override
        public void flush() {
            target().flush();
        }
    }
}
