/* The load generator: sends requests that were encoded beforehand, checks each answer, measures.
 *
 * A plan file (written by plan.py) holds request frames; connection i sends frame i modulo their
 * number. Before a frame goes out only what must differ is patched: the correlation id; in an
 * idempotent produce the sequence and, through it, the CRC of each batch; in a fetch the offset.
 * So the generator costs about as much as the kernel's send and recv, for every server the same.
 *
 * One thread and one epoll. Any error code, wrong correlation id, gap in the fetched offsets or
 * closed connection fails the run: a figure is printed only for work that was really done.
 *
 * Result: one JSON object on stdout. `load --help` lists the options.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "crc32c.h"
#include "stream.h"
#include "wire.h"

enum { EVENTS = 256, HEAD = 16 << 10, SCRATCH = 512 << 10, FEWEST_ANSWERS = 50, NODES = 16 };
#define SILENCE_NS 30000000000u

struct frame {
    uint32_t size, patches;
    const uint8_t *positions; /* big-endian u32 each: a batch, or the offset of a fetch */
    const uint8_t *bytes;
};

struct connection {
    struct stream stream;
    const struct frame *frame;
    uint8_t *ring;       /* `depth` copies of the frame, one for each request in flight */
    uint64_t *queued_at; /* by slot of the ring, nanoseconds */
    uint64_t queued, answered, sent_bytes;
    uint32_t sequence;
    int64_t offset;
    bool wants_write, finished;
    size_t got; /* bytes of the current answer, its length prefix included */
    uint8_t head[HEAD];
};

static struct {
    const char *host, *plan;
    int ports[NODES], port_count, connections, depth; /* connection i goes to port i modulo */
    double seconds, warmup, rate;
    uint64_t requests;
    int64_t fetch_end, batch_records;
    uint32_t batch_bytes;
    int servers[NODES], server_count;
    bool idempotent, once, tls;
    const char *user, *password; /* for a login with SASL/PLAIN before the first request */
} options = {.host = "127.0.0.1", .connections = 1, .depth = 1, .seconds = 1};

static struct frame *frames;
static uint32_t frame_count;
static struct connection *connections;
static struct shift sequence_shift;
static int epoll_fd, timer_fd = -1, api, version, finished_connections;
static volatile sig_atomic_t stopped;

/* The measured window, and what happened in it. */
static struct {
    bool open, closed;
    uint64_t start, end, requests, bytes, sent; /* `sent` counts from the very start */
    double cpu_start, cpu_end;
    uint32_t *latencies; /* tenths of a microsecond */
    size_t capacity;
} window;

static void fail(const char *what, long detail)
{
    fprintf(stderr, "load: %s (%ld)\n", what, detail);
    exit(1);
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* User and system time of all servers with all their threads. */
static double server_cpu(void)
{
    double seconds = 0;
    for (int i = 0; i < options.server_count; i++) {
        clockid_t clock;
        struct timespec t;
        if (clock_getcpuclockid((pid_t)options.servers[i], &clock) || clock_gettime(clock, &t))
            continue;
        seconds += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    return seconds;
}

/* ---- the measured window ---------------------------------------------------------------- */

static void open_window(uint64_t now)
{
    window.open = true;
    window.start = now;
    window.cpu_start = server_cpu();
}

static void close_window(uint64_t now)
{
    window.open = false;
    window.closed = true;
    window.end = now;
    window.cpu_end = server_cpu();
}

static void count_answer(uint64_t latency_ns, uint64_t bytes)
{
    if (!window.open)
        return;
    if (window.requests == window.capacity) {
        window.capacity = window.capacity ? window.capacity * 2 : 1 << 16;
        window.latencies = realloc(window.latencies, window.capacity * sizeof *window.latencies);
        if (!window.latencies)
            die("realloc");
    }
    window.latencies[window.requests++] = (uint32_t)(latency_ns / 100);
    window.bytes += bytes;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(double share)
{
    return window.requests ? window.latencies[(size_t)(share * (double)(window.requests - 1))] / 10.0
                           : 0;
}

static void print_result(void)
{
    qsort(window.latencies, window.requests, sizeof *window.latencies, by_value);
    printf("{\"requests\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           (unsigned long long)window.requests, (unsigned long long)window.bytes,
           (double)(window.end - window.start) / 1e9, window.cpu_end - window.cpu_start,
           percentile(0.5), percentile(0.99), percentile(1));
}

/* ---- the plan --------------------------------------------------------------------------- */

static uint8_t *read_file(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status))
        die(path);
    *size = (size_t)status.st_size;
    uint8_t *data = malloc(*size);
    for (size_t got = 0; got < *size;) {
        ssize_t n = read(fd, data + got, *size - got);
        if (n <= 0)
            die(path);
        got += (size_t)n;
    }
    close(fd);
    return data;
}

static uint32_t batch_size(const uint8_t *batch)
{
    return (uint32_t)load_be(batch + BATCH_LENGTH, 4) + BATCH_OVERHEAD;
}

static void read_plan(void)
{
    size_t size;
    uint8_t *data = read_file(options.plan, &size);
    struct cursor c = {data, data + size, false};
    frame_count = (uint32_t)get32(&c);
    frames = calloc(frame_count, sizeof *frames);
    for (uint32_t i = 0; i < frame_count; i++) {
        struct frame *f = &frames[i];
        f->patches = (uint32_t)get32(&c);
        f->positions = c.p;
        skip(&c, f->patches * 4);
        f->size = (uint32_t)get32(&c);
        f->bytes = c.p;
        skip(&c, f->size);
    }
    if (c.bad || !frame_count)
        fail("the plan file is damaged", 0);
    api = (int)load_be(frames[0].bytes + 4, 2);
    version = (int)load_be(frames[0].bytes + 6, 2);
    if (api == API_PRODUCE) {
        const uint8_t *batch = frames[0].bytes + load_be(frames[0].positions, 4);
        options.batch_bytes = batch_size(batch);
        options.batch_records = (int64_t)load_be(batch + BATCH_LAST_DELTA, 4) + 1;
        /* The four bytes of the sequence stand between the register and the rest of the batch. */
        shift_make(&sequence_shift, options.batch_bytes - BATCH_SEQUENCE);
    }
}

/* ---- sending ---------------------------------------------------------------------------- */

static void set_sequence(uint8_t *batch, uint32_t sequence)
{
    uint32_t old, new, difference;
    memcpy(&old, batch + BATCH_SEQUENCE, 4);
    store_be(batch + BATCH_SEQUENCE, sequence, 4);
    memcpy(&new, batch + BATCH_SEQUENCE, 4);
    difference = old ^ new; /* in memory order, as the little-endian register takes bytes in */
    uint32_t crc = (uint32_t)load_be(batch + BATCH_CRC, 4);
    store_be(batch + BATCH_CRC, crc ^ shifted(&sequence_shift, difference), 4);
}

static void queue_request(struct connection *c, uint64_t now)
{
    const struct frame *f = c->frame;
    size_t slot = c->queued % (size_t)options.depth;
    uint8_t *bytes = c->ring + slot * f->size;
    store_be(bytes + 8, c->queued, 4); /* the correlation id */
    for (uint32_t i = 0; i < f->patches; i++) {
        uint8_t *at = bytes + load_be(f->positions + 4 * i, 4);
        if (api == API_FETCH)
            store_be(at, (uint64_t)c->offset, 8);
        else if (options.idempotent)
            set_sequence(at, c->sequence);
    }
    c->sequence = (c->sequence + (uint32_t)options.batch_records) & 0x7fffffff;
    c->queued_at[slot] = now;
    c->queued++;
    window.sent++;
}

static void watch(struct connection *c, int operation, bool write_too)
{
    struct epoll_event event = {.events = EPOLLIN | (write_too ? EPOLLOUT : 0), .data.ptr = c};
    c->wants_write = write_too;
    if (epoll_ctl(epoll_fd, operation, c->stream.fd, &event))
        die("epoll_ctl");
}

/* One send for each request, as Kafka's clients do: joined ones would spare the server wake-ups
 * that it has in real life. */
static void send_queued(struct connection *c)
{
    size_t size = c->frame->size, ring = (size_t)options.depth * size;
    bool full = false;
    while (!full && c->sent_bytes < c->queued * size) {
        size_t from = c->sent_bytes % ring;
        ssize_t n = stream_send(&c->stream, c->ring + from, size - from % size);
        if (n < 0 && errno != EAGAIN)
            fail("the server closed a connection while we sent", errno);
        full = n < 0;
        c->sent_bytes += full ? 0 : (uint64_t)n;
    }
    if (full != c->wants_write)
        watch(c, EPOLL_CTL_MOD, full);
}

static bool may_send(const struct connection *c)
{
    return !window.closed && !c->finished && c->queued - c->answered < (uint64_t)options.depth &&
           (!options.requests || window.sent < options.requests);
}

static void fill(struct connection *c, uint64_t now)
{
    while (may_send(c))
        queue_request(c, now);
    send_queued(c);
}

/* Open loop: request k is due at start + k / rate on connection k modulo their number. It waits
 * for its turn if that connection is full, and its latency counts from when it was due. */
static void send_due(uint64_t start, uint64_t now)
{
    for (;;) {
        uint64_t due = start + (uint64_t)((double)window.sent * 1e9 / options.rate);
        struct connection *c = &connections[window.sent % (uint64_t)options.connections];
        if (due > now) {
            struct itimerspec t = {.it_value = {(time_t)(due / 1000000000u),
                                                (long)(due % 1000000000u)}};
            timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
            return;
        }
        if (!may_send(c))
            return;
        queue_request(c, due);
        send_queued(c);
    }
}

/* ---- answers ---------------------------------------------------------------------------- */

static uint64_t check_produce(struct cursor *r)
{
    bool flexible = version >= PRODUCE_FLEXIBLE;
    uint64_t partitions_seen = 0;
    for (int32_t topics = get_count(r, flexible); topics > 0 && !r->bad; topics--) {
        skip_topic(r, flexible, version >= PRODUCE_BY_ID);
        for (int32_t left = get_count(r, flexible); left > 0 && !r->bad; left--) {
            skip(r, 4); /* index */
            int error = get16(r);
            if (error)
                fail("a produce answer carries an error code", error);
            skip(r, 3 * 8); /* base offset, append time, log start */
            if (version >= 8) {
                if (get_count(r, flexible) > 0)
                    fail("a produce answer carries record errors", 0);
                skip_string(r, flexible);
            }
            skip_tags(r, flexible);
            partitions_seen++;
        }
        skip_tags(r, flexible);
    }
    return partitions_seen * options.batch_bytes;
}

/* One topic, one partition. The log is made of equal batches, so the size of the records says
 * which offset comes next; the offset of the first batch proves that the last one did. */
static uint64_t check_fetch(struct connection *c, struct cursor *r)
{
    bool flexible = version >= FETCH_FLEXIBLE;
    skip(r, 4);
    int error = get16(r);
    skip(r, 4);
    if (error || get_count(r, flexible) != 1)
        fail("a fetch answer carries an error code or not one topic", error);
    skip_topic(r, flexible, version >= FETCH_BY_ID);
    int32_t partitions = get_count(r, flexible);
    skip(r, 4);
    error = get16(r);
    if (error || partitions != 1)
        fail("a fetched partition carries an error code", error);
    skip(r, 3 * 8); /* high watermark, last stable and log start offset */
    if (get_count(r, flexible) > 0)
        fail("a fetch answer carries aborted transactions", 0);
    skip(r, 4);
    int32_t size = get_count(r, flexible);
    int64_t base = get64(r);
    if (size < (int32_t)options.batch_bytes || base != c->offset)
        fail("a fetch answer is empty or starts elsewhere; bytes", size);
    c->offset += size / (int32_t)options.batch_bytes * options.batch_records;
    if (c->offset >= options.fetch_end) {
        c->offset = 0;
        c->finished = options.once;
        finished_connections += options.once;
    }
    return (uint64_t)size;
}

static void answered(struct connection *c, uint64_t now)
{
    struct cursor r = {c->head + 4, c->head + (c->got < HEAD ? c->got : HEAD), false};
    if ((uint32_t)get32(&r) != (uint32_t)c->answered)
        fail("answers came out of order", (long)c->answered);
    skip_tags(&r, version >= (api == API_FETCH ? FETCH_FLEXIBLE : PRODUCE_FLEXIBLE));
    uint64_t bytes = api == API_FETCH ? check_fetch(c, &r) : check_produce(&r);
    if (r.bad)
        fail("an answer is too short", (long)c->got);
    count_answer(now - c->queued_at[c->answered % (uint64_t)options.depth], bytes);
    c->answered++;
    c->got = 0;
}

/* What one call gives; returns whether there was anything. */
static bool receive_some(struct connection *c)
{
    static uint8_t scratch[SCRATCH];
    ssize_t n = stream_receive(&c->stream, scratch, sizeof scratch);
    bool any = n > 0;
    if (n == 0 || (n < 0 && errno != EAGAIN))
        fail("the server closed a connection", (long)c->answered);
    uint64_t now = now_ns();
    for (uint8_t *p = scratch; n > 0;) {
        /* First the four bytes of the length, then the rest of that answer. */
        size_t whole = c->got < 4 ? 4 : 4 + load_be(c->head, 4);
        size_t part = whole - c->got < (size_t)n ? whole - c->got : (size_t)n;
        if (c->got < HEAD)
            memcpy(c->head + c->got, p, part < HEAD - c->got ? part : HEAD - c->got);
        c->got += part;
        p += part;
        n -= (ssize_t)part;
        if (c->got > 4 && c->got == 4 + load_be(c->head, 4))
            answered(c, now);
    }
    return any;
}

static void receive(struct connection *c)
{
    while (receive_some(c) && stream_has_more(&c->stream))
        ;
}

/* ---- the run ---------------------------------------------------------------------------- */

/* Sends a request of a few bytes and waits for its answer, whose error code must be 0. */
static void ask(struct stream *s, int key, const char *client, const uint8_t *body, size_t size)
{
    uint8_t frame[512], *p = frame + 4;
    size_t name = strlen(client), got = 0, whole = 4;
    store_be(p, (uint64_t)key, 2);
    store_be(p + 2, 1, 2); /* the version */
    store_be(p + 4, 0, 4); /* the correlation id */
    store_be(p + 8, name, 2);
    memcpy(p + 10, client, name);
    memcpy(p + 10 + name, body, size);
    store_be(frame, 10 + name + size, 4);
    if (stream_send(s, frame, 14 + name + size) != (ssize_t)(14 + name + size))
        die("login");
    while (got < whole) {
        ssize_t n = stream_receive(s, frame + got, sizeof frame - got);
        if (n <= 0)
            fail("the server closed a connection at its login", key);
        got += (size_t)n;
        if (got >= 4)
            whole = 4 + load_be(frame, 4);
        if (whole > sizeof frame)
            fail("an answer to a login is too long", (long)whole);
    }
    if (load_be(frame + 8, 2))
        fail("a login was refused", (long)load_be(frame + 8, 2));
}

static void log_in(struct stream *s)
{
    enum { SASL_HANDSHAKE = 17, SASL_AUTHENTICATE = 36 };
    uint8_t token[256];
    size_t user = strlen(options.user), password = strlen(options.password);
    size_t size = 2 + user + password;
    if (size + 4 > sizeof token)
        fail("--user and --password are too long", (long)size);
    ask(s, SASL_HANDSHAKE, "load", (const uint8_t *)"\0\5PLAIN", 7);
    store_be(token, size, 4);
    token[4] = 0;
    memcpy(token + 5, options.user, user);
    token[5 + user] = 0;
    memcpy(token + 6 + user, options.password, password);
    ask(s, SASL_AUTHENTICATE, "load", token, 4 + size);
}

static void connect_all(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1)
        fail("--host wants an IPv4 address", 0);
    connections = calloc((size_t)options.connections, sizeof *connections);
    for (int i = 0; i < options.connections; i++) {
        struct connection *c = &connections[i];
        int one = 1;
        address.sin_port = htons((uint16_t)options.ports[i % options.port_count]);
        c->frame = &frames[(uint32_t)i % frame_count];
        c->stream.fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->stream.fd, (struct sockaddr *)&address, sizeof address))
            die("connect");
        setsockopt(c->stream.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (options.tls)
            stream_start_tls(&c->stream);
        if (options.user)
            log_in(&c->stream);
        fcntl(c->stream.fd, F_SETFL, O_NONBLOCK);
        c->queued_at = calloc((size_t)options.depth, sizeof *c->queued_at);
        c->ring = malloc((size_t)options.depth * c->frame->size);
        for (int slot = 0; slot < options.depth; slot++)
            memcpy(c->ring + (size_t)slot * c->frame->size, c->frame->bytes, c->frame->size);
        watch(c, EPOLL_CTL_ADD, false);
    }
}

static void watch_timer(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &event))
        die("timerfd");
}

static bool all_answered(void)
{
    for (int i = 0; i < options.connections; i++)
        if (connections[i].answered < connections[i].queued)
            return false;
    return true;
}

/* A run by count or to the end of the log is over when its last answer is in; one by time, when
 * the time is, or later if there is too little to take a percentile of. */
static bool window_is_over(uint64_t now)
{
    if (stopped)
        return true;
    if (options.requests)
        return window.sent >= options.requests && all_answered();
    if (options.once)
        return finished_connections == options.connections;
    return (double)(now - window.start) / 1e9 >= options.seconds &&
           window.requests >= FEWEST_ANSWERS;
}

static void handle_event(const struct epoll_event *event)
{
    struct connection *c = event->data.ptr;
    uint64_t expirations;
    if (!c) {
        if (read(timer_fd, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
            die("timerfd");
        return;
    }
    if (event->events & ~(uint32_t)EPOLLOUT)
        receive(c);
    if (options.rate > 0)
        send_queued(c);
    else
        fill(c, now_ns());
}

static void run(void)
{
    struct epoll_event events[EVENTS];
    uint64_t start = now_ns(), last_event = start;
    if (options.rate > 0)
        watch_timer();
    else
        for (int i = 0; i < options.connections; i++)
            fill(&connections[i], now_ns());
    while (!window.closed || !all_answered()) {
        uint64_t now = now_ns();
        if (!window.open && !window.closed && (double)(now - start) / 1e9 >= options.warmup)
            open_window(now);
        if (window.open && window_is_over(now))
            close_window(now);
        if (options.rate > 0 && !window.closed)
            send_due(start, now);
        int n = epoll_wait(epoll_fd, events, EVENTS, 10);
        for (int i = 0; i < n; i++)
            handle_event(&events[i]);
        if (n > 0)
            last_event = now;
        else if (now - last_event > SILENCE_NS)
            fail("no answer for 30 s; connections", options.connections);
    }
}

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

static const struct option long_options[] = {
    {"host", 1, NULL, 'h'},          {"port", 1, NULL, 'p'},         {"plan", 1, NULL, 'f'},
    {"connections", 1, NULL, 'c'},   {"depth", 1, NULL, 'd'},        {"seconds", 1, NULL, 's'},
    {"warmup", 1, NULL, 'w'},        {"requests", 1, NULL, 'n'},     {"rate", 1, NULL, 'r'},
    {"server-pid", 1, NULL, 'P'},    {"idempotent", 0, NULL, 'i'},   {"once", 0, NULL, 'o'},
    {"fetch-end", 1, NULL, 'e'},     {"batch-bytes", 1, NULL, 'b'},  {"batch-records", 1, NULL, 'm'},
    {"tls", 0, NULL, 't'},           {"user", 1, NULL, 'u'},         {"password", 1, NULL, 'x'},
    {"help", 0, NULL, '?'},          {NULL, 0, NULL, 0},
};

/* Numbers with commas between them. */
static int read_list(const char *text, int *numbers)
{
    int count = 0;
    for (char *end; *text && count < NODES; text = *end ? end + 1 : end)
        numbers[count++] = (int)strtol(text, &end, 10);
    return count;
}

static void read_options(int argc, char **argv)
{
    for (int flag; (flag = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (flag) {
        case 'h': options.host = optarg; break;
        case 'p': options.port_count = read_list(optarg, options.ports); break;
        case 'f': options.plan = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'd': options.depth = atoi(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'w': options.warmup = atof(optarg); break;
        case 'n': options.requests = strtoull(optarg, NULL, 10); break;
        case 'r': options.rate = atof(optarg); break;
        case 'P': options.server_count = read_list(optarg, options.servers); break;
        case 'i': options.idempotent = true; break;
        case 'o': options.once = true; break;
        case 'e': options.fetch_end = strtoll(optarg, NULL, 10); break;
        case 'b': options.batch_bytes = (uint32_t)atoi(optarg); break;
        case 't': options.tls = true; break;
        case 'u': options.user = optarg; break;
        case 'x': options.password = optarg; break;
        case 'm': options.batch_records = strtoll(optarg, NULL, 10); break;
        default:
            fprintf(stderr, "usage: load --plan FILE --port N[,N...] [options]\n");
            for (const struct option *o = long_options; o->name; o++)
                fprintf(stderr, "  --%s%s\n", o->name, o->has_arg ? " VALUE" : "");
            exit(2);
        }
    }
    if (!options.plan || !options.port_count || options.depth < 1 || options.connections < 1)
        fail("--plan and --port are needed, --depth and --connections are at least 1", 0);
    if (options.user && !options.password)
        fail("--user needs --password", 0);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    crc_start();
    read_plan();
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connect_all();
    run();
    print_result();
    return 0;
}
