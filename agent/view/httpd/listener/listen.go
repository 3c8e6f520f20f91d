// Package listener decides who may ask an agent over HTTP, and bounds what all who ask may cost: a
// Listener in connections and in checks of passwords, a Sender and Scrapes in answers.
//
//	ln, err := listener.Listen(address, webConfig, allowInsecure, access)
//	err = ln.Serve(ctx, listener.Guard(logger, failed, handler), logger)
package listener

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// DefaultListen is the address that an agent listens on by default.
const DefaultListen = "127.0.0.1:9464"

// sendBuffer bounds what the kernel holds of an answer that is not read, which counts as memory of
// the agent's cgroup. The kernel doubles it.
const sendBuffer = 64 << 10

// SocketPrefix is what an address begins with that is the path of a Unix socket.
const SocketPrefix = "unix:"

// A Listener is an address that a Server answers on, and who may ask.
type Listener struct {
	net.Listener
	webConfig   string // file, or ""
	protected   bool   // the file configured TLS or users when the address was opened
	connections *connections
	passwords   *passwords
	// certificates is nil if the file did not configure TLS when the address was opened.
	certificates *certificates

	begin    sync.Once     // begins to accept connections
	accepted chan accepted // those that have asked
	closed   chan struct{}
	close    sync.Once
}

// accepted is what Accept returns.
type accepted struct {
	conn *connection
	err  error
}

// Listen opens address: a host and port, or unix:PATH with who may connect. webConfig is a file
// with TLS and users in the format of the Prometheus exporters, or "" for none. Profiles show what
// a machine runs, down to method names, so an address that others can reach needs a webConfig with
// TLS or users, or allowInsecure. Any user of the machine can reach a loopback address.
func Listen(address, webConfig string, allowInsecure bool, access socketfile.Access) (*Listener, error) {
	protected, tls := false, false
	if webConfig != "" {
		err := web.Validate(webConfig)
		var users bool
		if err == nil {
			tls, users, err = readProtection(webConfig)
		}
		if err != nil {
			return nil, fmt.Errorf("read --web.config.file=%s: %w", webConfig, err)
		}
		protected = tls || users
	}
	ln := &Listener{webConfig: webConfig, protected: protected, connections: newConnections(tls),
		passwords: newPasswords(webConfig),
		accepted:  make(chan accepted), closed: make(chan struct{})}
	if tls {
		ln.certificates = &certificates{webConfig: webConfig}
	}
	if path, ok := strings.CutPrefix(address, SocketPrefix); ok {
		socket, err := socketfile.Listen("unix", path, access)
		if err != nil {
			return nil, fmt.Errorf("open --web.listen-address=%s: %w", address, err)
		}
		ln.Listener = socket
		return ln, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("read --web.listen-address=%s, which must be HOST:PORT or unix:PATH: %w", address, err)
	}
	// Resolved once: what is judged is what is listened on.
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("resolve --web.listen-address=%s: %w", address, err)
	}
	if !isLoopback(addr) && !protected && !allowInsecure {
		given := "give a --web.config.file with TLS or users"
		if webConfig != "" {
			given = fmt.Sprintf("--web.config.file=%s has neither: add tls_server_config or basic_auth_users",
				webConfig)
		}
		return nil, fmt.Errorf("refuse --web.listen-address=%s: anybody who can reach it could read the profiles of "+
			"every process on this machine; "+
			"%s, or pass --web.allow-insecure if the network is trusted", address, given)
	}
	if ln.Listener, err = net.ListenTCP("tcp", addr); err != nil {
		return nil, fmt.Errorf("open --web.listen-address=%s: %w", address, err)
	}
	return ln, nil
}

// PasswordChecks counts the requests with a password by what became of them: right, wrong,
// remembered (right, and checked a moment ago), shared (with another request, for which it is being
// checked) or refused (not checked, as too many were wrong).
func (l *Listener) PasswordChecks() map[string]uint64 { return l.passwords.state() }

// TLSFailures counts the times that TLS could not be configured from the files as they were: at a
// handshake that failed, and every 10 s.
func (l *Listener) TLSFailures() uint64 {
	if l.certificates == nil {
		return 0
	}
	return l.certificates.failures.Load()
}

// Accept waits for a connection on which a request has arrived (with TLS: anything), and until
// there is room for it.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.acceptAll() })
	select {
	case a := <-l.accepted:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// acceptAll accepts connections until the listener is closed. Each waits for its own request.
func (l *Listener) acceptAll() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil { // the server waits before it goes on
			if !l.hand(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		if buffered, ok := conn.(interface{ SetWriteBuffer(int) error }); ok {
			_ = buffered.SetWriteBuffer(sendBuffer) // fails only if the connection is gone
		}
		entered := l.connections.enter(conn)
		go func() {
			if first := entered.await(); first.request {
				l.connections.add(entered, first.health)
				if l.hand(accepted{conn: entered}) {
					return
				}
			}
			entered.Close()
		}()
	}
}

// hand has Accept return something. It reports false if the listener is closed.
func (l *Listener) hand(a accepted) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.closed:
		return false
	}
}

// Close ends Accept, and closes the connections that it has not returned.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	l.connections.close()
	return err
}

// readProtection says whether a file configures TLS, and whether it configures users.
func readProtection(webConfig string) (tls, users bool, err error) {
	c, err := readConfig(webConfig)
	if err != nil {
		return false, false, err
	}
	return c.TLSConfig.IsEnabled(), len(c.Users) > 0, nil
}

func readConfig(webConfig string) (*web.Config, error) {
	text, err := os.ReadFile(webConfig)
	if err != nil {
		return nil, err
	}
	var c web.Config
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// settled is how long a configuration file must be unchanged to be believed: the library that asks
// for passwords reads it a moment before protect does, and may have seen it half written.
const settled = time.Second

// protect refuses requests when a configuration file that protected the server does not any more:
// the library reads the file again for each request, and lets everybody in if there are no users in
// it.
func (l *Listener) protect(next http.Handler) http.Handler {
	if !l.protected {
		return next
	}
	began := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := os.Stat(l.webConfig)
		if err == nil && info.ModTime().After(began) && time.Since(info.ModTime()).Abs() < settled {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the agent's --web.config.file has just changed: try again in a second",
				http.StatusServiceUnavailable)
			return
		}
		// TLS protects only those connections that have it.
		if tls, users, err := readProtection(l.webConfig); err != nil || !users && (!tls || r.TLS == nil) {
			http.Error(w, "the agent's --web.config.file no longer configures TLS or users: add tls_server_config or "+
				"basic_auth_users to it, "+
				"or restart the agent without the file", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}
