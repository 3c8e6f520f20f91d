package listener

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

// certificatesEvery is how often certificates are looked at without a handshake: clients that keep
// their connections make none for hours.
const certificatesEvery = 10 * time.Second

// certificates says when TLS cannot be configured any more. The library reads the configuration,
// the certificate and the key anew for each handshake, which fails if one of them is bad, and tells
// nobody but the client.
type certificates struct {
	webConfig string
	failures  atomic.Uint64

	mu    sync.Mutex
	wrong string // what was wrong at the last look; "" if nothing was
}

// look does what the library does for a handshake. It logs what is wrong when that changes, and
// counts it each time.
func (c *certificates) look(log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := ""
	if err := c.configure(); err != nil {
		wrong = err.Error()
		c.failures.Add(1)
	}
	switch {
	case wrong == c.wrong:
	case wrong == "": // a warning, so that whoever reads the error reads this, too
		log.Warn("TLS connections are accepted again", "file", c.webConfig)
	default:
		log.Error("new TLS connections are refused: fix --web.config.file, or the file that it names; no restart is "+
			"needed",
			"file", c.webConfig, "err", wrong)
	}
	c.wrong = wrong
}

func (c *certificates) configure() error {
	config, err := readConfig(c.webConfig)
	if err != nil {
		return err
	}
	config.TLSConfig.SetDirectory(filepath.Dir(c.webConfig))
	_, err = web.ConfigToTLSConfig(&config.TLSConfig)
	return err
}

// watch looks from time to time until ctx ends.
func (c *certificates) watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(certificatesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.look(log)
		case <-ctx.Done():
			return
		}
	}
}

// serverErrors takes what the server logs of connections, mostly clients that hung up. One of them
// may be a handshake that failed because of the certificates, which look finds out.
type serverErrors struct {
	certificates *certificates // nil without TLS
	log          *slog.Logger
}

// Write implements io.Writer.
func (e serverErrors) Write(line []byte) (int, error) {
	if e.certificates != nil {
		e.certificates.look(e.log)
	}
	e.log.Debug(strings.TrimSpace(string(line)))
	return len(line), nil
}
