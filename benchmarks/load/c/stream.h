/* A connected socket, with TLS where WITH_TLS is compiled in and asked for.
 *
 * stream_send and stream_receive are send and recv: -1 with EAGAIN if nothing can be done now, 0 at
 * the end of the stream. With TLS a caller receives until EAGAIN, because bytes that have been
 * decrypted do not make the socket readable.
 */
#ifndef STREAM_H
#define STREAM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

struct stream {
    int fd;
#ifdef WITH_TLS
    SSL *tls;
#endif
};

#ifdef WITH_TLS

static void stream_start_tls(struct stream *s)
{
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        /* The load is measured, not the authority: the servers run on this machine. */
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    s->tls = SSL_new(context);
    if (!SSL_set_fd(s->tls, s->fd) || SSL_connect(s->tls) != 1) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
}

static ssize_t stream_result(struct stream *s, int n)
{
    if (n > 0)
        return n;
    int error = SSL_get_error(s->tls, n);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = EPROTO;
    return -1;
}

#else

static void stream_start_tls(struct stream *s)
{
    (void)s;
    fprintf(stderr, "load: compiled without TLS\n");
    exit(1);
}

#endif

static ssize_t stream_send(struct stream *s, const uint8_t *bytes, size_t size)
{
#ifdef WITH_TLS
    if (s->tls)
        return stream_result(s, SSL_write(s->tls, bytes, (int)size));
#endif
    return send(s->fd, bytes, size, MSG_NOSIGNAL);
}

static ssize_t stream_receive(struct stream *s, uint8_t *bytes, size_t size)
{
#ifdef WITH_TLS
    if (s->tls)
        return stream_result(s, SSL_read(s->tls, bytes, (int)size));
#endif
    return recv(s->fd, bytes, size, 0);
}

static bool stream_has_more(const struct stream *s)
{
#ifdef WITH_TLS
    return s->tls != NULL;
#else
    (void)s;
    return false;
#endif
}

#endif
