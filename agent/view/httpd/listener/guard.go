package listener

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"
)

// policy lets the pages be what they are, self-contained with scripts and styles inside, and
// nothing else: names in them were chosen by the programs that were profiled, and must not make a
// browser load or send anything.
const policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Guard says to browsers what the answers of a handler may do, and refuses requests with a body. It
// answers, counts and logs that the handler panicked.
func Guard(logger *slog.Logger, count func(), next http.Handler) http.Handler {
	return caught(logger, count, bodiless(headers(next)))
}

// headers says to browsers what the answers may do.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// bodiless refuses requests with a body, as none needs one. The server would otherwise wait for the
// rest of a body as long as the client likes, since the time to read it is not limited.
func bodiless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// An error only means that the connection is gone.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
			w.Header().Set("Connection", "close")
			http.Error(w, "the request has a body: send it without", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// caught answers, counts and logs that a handler panicked. The server would end the connection
// without a word.
func caught(logger *slog.Logger, count func(), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			switch {
			case v == http.ErrAbortHandler:
				panic(v)
			case v != nil:
				count()
				logger.Error("Request failed: the agent panicked", "path", r.URL.Path, "panic", v, "stack",
					string(debug.Stack()))
				http.Error(w, "the agent failed at this; its log says where", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// localHost guards a server that listens on a loopback address against DNS rebinding: a web page
// elsewhere whose name is made to point to 127.0.0.1 could otherwise read the answers through the
// browser of somebody on this machine. Such a request carries the page's name as its Host. Servers
// on other addresses are left as they are, they have authentication instead.
func localHost(addr net.Addr, next http.Handler) http.Handler {
	if !isLoopback(addr) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalName(r.Host) {
			http.Error(w, "this agent listens on the loopback interface only: use localhost or 127.0.0.1 in the URL",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// isLocalName says whether a Host header names this machine in a way that no DNS server decides.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}
