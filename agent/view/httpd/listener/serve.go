package listener

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

const (
	maxHeaderBytes = 8 << 10
	// WriteTimeout is for a whole answer, from the end of the request's header.
	WriteTimeout = 30 * time.Second
	// shutdownGrace is for answers under way when the server is to stop.
	shutdownGrace = 5 * time.Second
)

// ErrStopping is the cause with which requests end when the server stops, as opposed to a client
// that went away.
var ErrStopping = errors.New("the agent is stopping")

// Serve has a handler answer until ctx ends, and closes the listener. Requests that are being
// answered at the end have a moment to be.
func (l *Listener) Serve(ctx context.Context, handler http.Handler, logger *slog.Logger) error {
	requests, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(ErrStopping)
	srv := &http.Server{
		Handler: l.protect(localHost(l.Addr(), handler)),
		// No ReadTimeout: it would also end requests that are being answered. See bodiless.
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(serverErrors{l.certificates, logger}, "", 0),
		ConnContext:       withConnection,
	}
	srv.BaseContext = func(net.Listener) context.Context {
		// web.Serve has put its handler around that one, and there is no connection yet.
		if l.webConfig != "" {
			srv.Handler = l.passwords.guard(srv.Handler)
		}
		srv.Handler = connected(srv.Handler)
		return requests
	}

	if l.certificates != nil {
		go l.certificates.watch(requests, logger)
	}
	served := make(chan error, 1)
	go func() {
		served <- web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &l.webConfig}, logger)
	}()
	select {
	case err := <-served:
		l.Close() // web.Serve leaves it open when the configuration is bad
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}

	stop(ErrStopping)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		srv.Close() // a client that does not read its answer
	}
	<-served
	return nil
}
