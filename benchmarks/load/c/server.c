/* The reference: what a server in C reaches that does the least a broker can do.
 *
 * Produce (v7-v13): recv, walk the request, check the CRC-32C of each batch, write its offset in
 * place, one writev per readiness round for everything that came, then the answers.
 * Fetch (v11): a header and sendfile of whole batches from a prepared file; this is the loopback
 * limit of sendfile with the request and response sizes of a real fetch.
 *
 * It keeps no index, no producer state and no metadata, and must never grow any: a ratio against
 * it says what those and the interpreter cost.
 *
 *   server PORT LOG_FILE [FETCH_PREFIX BATCH_BYTES BATCH_RECORDS]
 *
 * FETCH_PREFIX-N is the log of partition N, made of equal batches. Runs until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crc32c.h"
#include "wire.h"

enum { EVENTS = 256, PIECES = 1024, PARTITIONS = 64, CORRUPT_MESSAGE = 2 };
#define IN_CAPACITY (8u << 20)  /* reserved address space; only touched pages cost memory */
#define OUT_CAPACITY (256u << 10)

struct connection {
    int fd;
    bool wants_write;
    size_t in_used, in_parsed; /* received bytes; those of them that answered frames hold */
    size_t out_used, out_sent;
    int file; /* a fetch answer's records, sent after `out` */
    off_t file_position;
    size_t file_left;
    uint8_t *in, *out;
};

static int epoll_fd, log_fd;
static int64_t next_offset;
static struct iovec pieces[PIECES];
static int piece_count;

static const char *fetch_prefix;
static size_t batch_bytes;
static int64_t batch_records;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- the log ---------------------------------------------------------------------------- */

static void write_pieces(void)
{
    struct iovec *at = pieces;
    for (int left = piece_count; left;) {
        ssize_t n = writev(log_fd, at, left);
        if (n < 0)
            die("writev");
        for (; left && (size_t)n >= at->iov_len; at++, left--)
            n -= (ssize_t)at->iov_len;
        if (left) {
            at->iov_base = (uint8_t *)at->iov_base + n;
            at->iov_len -= (size_t)n;
        }
    }
    piece_count = 0;
}

static int append(uint8_t *batch, size_t size, int64_t *base_offset)
{
    *base_offset = next_offset;
    if (size < BATCH_HEADER || load_be(batch + BATCH_LENGTH, 4) + BATCH_OVERHEAD != size ||
        crc32c(batch + BATCH_CRC_START, size - BATCH_CRC_START) != load_be(batch + BATCH_CRC, 4))
        return CORRUPT_MESSAGE;
    store_be(batch, (uint64_t)next_offset, 8);
    store_be(batch + BATCH_OVERHEAD, 0, 4);
    next_offset += (int64_t)load_be(batch + BATCH_LAST_DELTA, 4) + 1;
    if (piece_count == PIECES)
        write_pieces();
    pieces[piece_count++] = (struct iovec){batch, size};
    return 0;
}

/* ---- answers ---------------------------------------------------------------------------- */

static void put(struct connection *c, uint64_t value, int bytes)
{
    store_be(c->out + c->out_used, value, bytes);
    c->out_used += (size_t)bytes;
}

static void put_bytes(struct connection *c, const uint8_t *p, size_t n)
{
    memcpy(c->out + c->out_used, p, n);
    c->out_used += n;
}

static void put_count(struct connection *c, uint32_t n, bool flexible)
{
    if (!flexible) {
        put(c, n, 4);
        return;
    }
    for (n++; n > 127; n >>= 7)
        put(c, n | 128, 1);
    put(c, n, 1);
}

static size_t begin_answer(struct connection *c, int32_t correlation_id, bool flexible)
{
    if (c->out_used + (OUT_CAPACITY / 2) > OUT_CAPACITY) {
        fprintf(stderr, "a client sends faster than it reads its answers\n");
        exit(1);
    }
    size_t start = c->out_used;
    put(c, 0, 4);
    put(c, (uint32_t)correlation_id, 4);
    if (flexible)
        put(c, 0, 1);
    return start;
}

static void end_answer(struct connection *c, size_t start)
{
    store_be(c->out + start, c->out_used - start - 4 + c->file_left, 4);
}

/* ---- the two requests ------------------------------------------------------------------- */

static void produce_partition(struct connection *c, struct cursor *r, int version)
{
    bool flexible = version >= PRODUCE_FLEXIBLE;
    int32_t index = get32(r);
    int32_t size = get_count(r, flexible);
    uint8_t *batch = r->p;
    skip(r, size < 0 ? 0 : (size_t)size);
    skip_tags(r, flexible);
    if (r->bad)
        return;
    int64_t base_offset;
    int error = append(batch, size < 0 ? 0 : (size_t)size, &base_offset);
    put(c, (uint32_t)index, 4);
    put(c, (uint64_t)error, 2);
    put(c, (uint64_t)base_offset, 8);
    put(c, (uint64_t)-1, 8); /* log append time */
    put(c, 0, 8);            /* log start offset */
    if (version >= 8) {
        put_count(c, 0, flexible); /* record errors */
        if (flexible)
            put(c, 0, 2); /* a null message, no tags */
        else
            put(c, (uint16_t)-1, 2);
    }
}

static void produce(struct connection *c, struct cursor *r, int version, int32_t correlation_id)
{
    bool flexible = version >= PRODUCE_FLEXIBLE;
    size_t start = begin_answer(c, correlation_id, flexible);
    skip_string(r, flexible); /* transactional id */
    skip(r, 2 + 4);           /* acks, timeout */
    int32_t topics = get_count(r, flexible);
    put_count(c, (uint32_t)topics, flexible);
    while (topics-- > 0 && !r->bad) {
        uint8_t *name = r->p;
        skip_topic(r, flexible, version >= PRODUCE_BY_ID);
        put_bytes(c, name, (size_t)(r->p - name));
        int32_t partitions = get_count(r, flexible);
        put_count(c, (uint32_t)partitions, flexible);
        while (partitions-- > 0 && !r->bad)
            produce_partition(c, r, version);
        skip_tags(r, flexible);
        if (flexible)
            put(c, 0, 1);
    }
    put(c, 0, 4); /* throttle time */
    if (flexible)
        put(c, 0, 1);
    end_answer(c, start);
}

static int fetch_file(int32_t partition, size_t *size)
{
    static int files[PARTITIONS];
    static size_t sizes[PARTITIONS];
    if (!fetch_prefix || partition < 0 || partition >= PARTITIONS)
        return -1;
    if (!files[partition]) {
        char path[4096];
        struct stat status;
        snprintf(path, sizeof path, "%s-%d", fetch_prefix, partition);
        files[partition] = open(path, O_RDONLY | O_CLOEXEC);
        if (files[partition] < 0 || fstat(files[partition], &status))
            die(path);
        sizes[partition] = (size_t)status.st_size;
    }
    *size = sizes[partition];
    return files[partition];
}

/* Version 11 alone, one topic and one partition a request, which is what a benchmark asks. */
static void fetch(struct connection *c, struct cursor *r, int32_t correlation_id)
{
    skip(r, 4 * 4 + 1 + 2 * 4); /* replica, wait, min and max bytes; isolation; session */
    skip(r, 4);
    uint8_t *topic = r->p;
    skip_string(r, false);
    size_t topic_bytes = (size_t)(r->p - topic);
    skip(r, 4);
    int32_t partition = get32(r);
    skip(r, 4); /* leader epoch */
    int64_t offset = get64(r);
    skip(r, 8); /* log start offset */
    size_t wanted = (uint32_t)get32(r), size = 0;
    c->file = fetch_file(partition, &size);
    if (r->bad || c->file < 0)
        return;
    size_t position = (size_t)(offset / batch_records) * batch_bytes;
    if (position > size)
        position = size;
    if (wanted > size - position)
        wanted = size - position;
    c->file_position = (off_t)position;
    c->file_left = wanted / batch_bytes * batch_bytes;
    uint64_t end = size / batch_bytes * (uint64_t)batch_records;

    size_t start = begin_answer(c, correlation_id, false);
    put(c, 0, 4 + 2 + 4); /* throttle, error, session: ten bytes of zeros */
    put(c, 1, 4);
    put_bytes(c, topic, topic_bytes);
    put(c, 1, 4);
    put(c, (uint32_t)partition, 4);
    put(c, 0, 2);
    put(c, end, 8);
    put(c, end, 8);
    put(c, 0, 8);
    put(c, (uint32_t)-1, 4); /* no aborted transactions */
    put(c, (uint32_t)-1, 4); /* no preferred replica */
    put(c, c->file_left, 4);
    end_answer(c, start);
}

static bool handle(struct connection *c, uint8_t *frame, size_t size)
{
    struct cursor r = {frame, frame + size, false};
    int api = get16(&r), version = get16(&r);
    int32_t correlation_id = get32(&r);
    skip_string(&r, false); /* client id: never compact */
    if (api == API_PRODUCE && version >= 7 && version <= 13) {
        skip_tags(&r, version >= PRODUCE_FLEXIBLE);
        produce(c, &r, version, correlation_id);
    } else if (api == API_FETCH && version == 11 && !c->file_left) {
        fetch(c, &r, correlation_id);
    } else {
        return false;
    }
    return !r.bad;
}

/* ---- connections ------------------------------------------------------------------------ */

static void watch(struct connection *c, int operation, bool write_too)
{
    struct epoll_event event = {.events = EPOLLIN | (write_too ? EPOLLOUT : 0), .data.ptr = c};
    c->wants_write = write_too;
    if (epoll_ctl(epoll_fd, operation, c->fd, &event))
        die("epoll_ctl");
}

static void accept_connection(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->in = mmap(NULL, IN_CAPACITY + OUT_CAPACITY, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c->in == MAP_FAILED)
        die("mmap");
    c->out = c->in + IN_CAPACITY;
    watch(c, EPOLL_CTL_ADD, false);
}

static void close_connection(struct connection *c)
{
    close(c->fd);
    munmap(c->in, IN_CAPACITY + OUT_CAPACITY);
    free(c);
}

static bool handle_frames(struct connection *c)
{
    while (c->in_used - c->in_parsed >= 4) {
        size_t size = load_be(c->in + c->in_parsed, 4);
        if (size > IN_CAPACITY - 4)
            return false;
        if (c->in_used - c->in_parsed < 4 + size)
            break;
        if (!handle(c, c->in + c->in_parsed + 4, size))
            return false;
        c->in_parsed += 4 + size;
    }
    return true;
}

/* Receives until no frame is left in parts or the socket is empty: a large batch is then checked
 * while it is still in the CPU's cache. The frames stay in the buffer, since their batches are
 * written at the end of the round. */
static bool receive(struct connection *c)
{
    do {
        ssize_t n = recv(c->fd, c->in + c->in_used, IN_CAPACITY - c->in_used, 0);
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        c->in_used += (size_t)n;
        if (!handle_frames(c))
            return false;
    } while (c->in_used > c->in_parsed && c->in_used < IN_CAPACITY);
    return true;
}

static void forget_written(struct connection *c)
{
    if (c->in_parsed && c->in_used > c->in_parsed)
        memmove(c->in, c->in + c->in_parsed, c->in_used - c->in_parsed);
    c->in_used -= c->in_parsed;
    c->in_parsed = 0;
}

/* Sends what is there; asks to be woken when the socket is full. */
static bool answer(struct connection *c)
{
    bool full = false;
    while (!full && c->out_sent < c->out_used) {
        int more = c->file_left ? MSG_MORE : 0;
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_NOSIGNAL | more);
        if (n < 0 && errno != EAGAIN)
            return false;
        full = n < 0;
        c->out_sent += full ? 0 : (size_t)n;
    }
    while (!full && c->file_left) {
        ssize_t n = sendfile(c->fd, c->file, &c->file_position, c->file_left);
        if (n <= 0 && errno != EAGAIN)
            return false;
        full = n <= 0;
        c->file_left -= full ? 0 : (size_t)n;
    }
    if (!full)
        c->out_used = c->out_sent = 0;
    if (full != c->wants_write)
        watch(c, EPOLL_CTL_MOD, full);
    return true;
}

static void serve_round(struct connection **ready, int count)
{
    bool alive[EVENTS];
    for (int i = 0; i < count; i++)
        alive[i] = receive(ready[i]);
    write_pieces();
    for (int i = 0; i < count; i++) {
        forget_written(ready[i]);
        if (!alive[i] || !answer(ready[i]))
            close_connection(ready[i]);
    }
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 512))
        die("listen");
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 6) {
        fprintf(stderr, "usage: server PORT LOG_FILE [FETCH_PREFIX BATCH_BYTES BATCH_RECORDS]\n");
        return 2;
    }
    if (argc == 6) {
        fetch_prefix = argv[3];
        batch_bytes = strtoul(argv[4], NULL, 10);
        batch_records = strtol(argv[5], NULL, 10);
    }
    crc_start();
    log_fd = open(argv[2], O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (log_fd < 0 || epoll_fd < 0)
        die("open");
    int listener = listen_on(atoi(argv[1]));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event))
        die("epoll_ctl");
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct connection *ready[EVENTS];
        int count = 0, n = epoll_wait(epoll_fd, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr)
                ready[count++] = events[i].data.ptr;
            else
                accept_connection(listener);
        }
        serve_round(ready, count);
    }
}
