package httpd

import (
	"fmt"
	"net"

	"github.com/prometheus/exporter-toolkit/web"
)

// DefaultListen is the address that an agent listens on unless told otherwise.
const DefaultListen = "127.0.0.1:9464"

// Listen opens address, a host and port. Profiles tell what a machine runs, down to method names, so an address
// that others can reach needs a webConfig (see Serve), which may be empty otherwise, or allowInsecure.
func Listen(address, webConfig string, allowInsecure bool) (net.Listener, error) {
	if err := web.Validate(webConfig); err != nil {
		return nil, fmt.Errorf("read --web.config.file=%s: %w", webConfig, err)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("read --listen=%s, which must be HOST:PORT: %w", address, err)
	}
	// Resolved once: what is judged is what is listened on.
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("resolve --listen=%s: %w", address, err)
	}
	if !isLoopback(addr) && webConfig == "" && !allowInsecure {
		return nil, fmt.Errorf("refuse --listen=%s: anybody who can reach it could read the profiles of every process on this machine; "+
			"give a --web.config.file with TLS or passwords, or --web.allow-insecure if the network is trusted", address)
	}
	ln, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open --listen=%s: %w", address, err)
	}
	return ln, nil
}
