package listener

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sys/unix"
)

// A check of a password is meant to be expensive: 60 ms of CPU time at the usual cost. These bound
// what checks take, whoever asks for them.
const (
	// rememberFor is how long after its last use a password that was right is not checked again,
	// and maxRemembered is how many of these there are.
	rememberFor   = 10 * time.Minute
	maxRemembered = 1000
	// checkBurst is how many wrong passwords an address may try at once, and checkEvery how long it
	// takes until it may try another one.
	checkBurst = 5
	checkEvery = 10 * time.Second
	// maxAddresses is how many addresses have a bound of their own. All others have one together.
	maxAddresses = 1024
	// maxWaiting is how many checks wait: one is made at a time. The next one is that of the
	// network with the fewest wrong passwords, and of the address with the fewest there: guesses
	// from many addresses must not keep others from a first login.
	maxWaiting = 8
	// restAfterWrong is how often the time of a check that failed passes before the next one: they
	// take at most a tenth of a CPU.
	restAfterWrong = 9
)

// What becomes of requests with a password.
const (
	passwordRight      = "right"
	passwordWrong      = "wrong"
	passwordRemembered = "remembered" // right, and checked a moment ago
	passwordShared     = "shared"     // with another request, for which it is being checked
	passwordRefused    = "refused"    // not checked, as too many were wrong
)

// passwords checks those of requests before the library does, which bounds nothing and would
// compute a hash for each wrong one.
type passwords struct {
	users   func() (map[string]string, error) // hashes of the configuration, read anew
	compare func(hash, password []byte) error // bcrypt's
	key     [32]byte                          // random: what is remembered is of no use elsewhere

	mu        sync.Mutex
	good      map[[32]byte]time.Time // what is remembered, until then
	checking  map[[32]byte]*checked  // what is being checked
	addresses map[string]*allowance
	waiting   []*checked // for the turn
	busy      bool       // somebody has the turn, or gets it after the rest
	rest      time.Time  // no check before
	counts    map[string]uint64
}

// A checked is a password that several requests have, which is checked once.
type checked struct {
	done  chan struct{}
	right bool
	wait  time.Duration // as check returns

	turn    chan struct{} // closed when it is checked now
	dropped chan struct{} // closed when it will not be
	address string
}

// An allowance is how many wrong passwords an address may try.
type allowance struct {
	left float64
	at   time.Time
}

func newPasswords(webConfig string) *passwords {
	p := &passwords{
		users: func() (map[string]string, error) {
			c, err := readConfig(webConfig)
			if err != nil {
				return nil, err
			}
			hashes := map[string]string{}
			for user, hash := range c.Users {
				hashes[user] = string(hash)
			}
			return hashes, nil
		},
		compare: bcrypt.CompareHashAndPassword,
		good:    map[[32]byte]time.Time{}, checking: map[[32]byte]*checked{}, addresses: map[string]*allowance{},
		counts: map[string]uint64{passwordRight: 0, passwordWrong: 0, passwordRemembered: 0, passwordRefused: 0,
			passwordShared: 0},
	}
	_, _ = rand.Read(p.key[:]) // never fails
	return p
}

// guard answers requests with a password that is not checked, and takes wrong ones out of requests:
// next, the library's handler, refuses these, and those without.
func (p *passwords) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, given := r.BasicAuth(); given {
			users, err := p.users()
			if err == nil && len(users) > 0 { // otherwise next says what is wrong with the file
				ok, wait := p.check(r.Context(), users, user, password, addressOf(r))
				if wait > 0 {
					w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
					http.Error(w, "too many wrong passwords: try again later", http.StatusTooManyRequests)
					return
				}
				if !ok {
					r.Header.Del("Authorization")
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// check reports whether a password is right. wait is how long it will not be checked, 0 if it was.
// A check of an unknown user takes as long as one of a user who exists.
func (p *passwords) check(
	ctx context.Context, users map[string]string, user, password, address string,
) (ok bool, wait time.Duration) {
	hash, known := users[user]
	if !known {
		hash = p.substitute(users, user)
	}
	id := p.digest(user, hash, password)
	c, mine := p.admit(id, address)
	if !mine {
		select {
		case <-c.done:
			return c.right, c.wait
		case <-ctx.Done():
			return false, time.Second
		}
	}
	c.wait = time.Second
	defer p.leave(id, c)
	select {
	case <-c.turn:
	case <-c.dropped:
		return false, time.Second
	case <-ctx.Done():
		return false, time.Second
	}
	began := time.Now()
	c.right, c.wait = p.compare([]byte(hash), []byte(password)) == nil && known, 0
	p.note(id, address, c.right, time.Since(began))
	return c.right, 0
}

// admit finds out whether a password is to be checked by the caller, who calls leave then.
// Otherwise the result is that of another check, or it is known: the password is right, or is not
// checked for a while.
func (p *passwords) admit(id [32]byte, address string) (c *checked, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.good[id]) {
		p.counts[passwordRemembered]++
		p.good[id] = now.Add(rememberFor)
		return decided(true, 0), false
	}
	if c := p.checking[id]; c != nil {
		p.counts[passwordShared]++
		return c, false
	}
	a := p.allowanceOf(address, now)
	switch {
	case a.left < 1:
		p.counts[passwordRefused]++
		return decided(false, time.Duration((1-a.left)*float64(checkEvery))), false
	}
	a.left-- // until it is right, or is not checked
	c = &checked{done: make(chan struct{}), turn: make(chan struct{}), dropped: make(chan struct{}), address: address}
	if len(p.waiting) >= maxWaiting {
		last := slices.MaxFunc(p.waiting, p.order)
		p.counts[passwordRefused]++
		if p.order(c, last) >= 0 {
			a.left++
			return decided(false, time.Second), false
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(w *checked) bool { return w == last })
		close(last.dropped)
	}
	p.waiting = append(p.waiting, c)
	p.checking[id] = c
	p.next()
	return c, true
}

// order is negative if a is checked before b: fewer passwords were wrong, of late, in its network,
// or else of its address. mu is held.
func (p *passwords) order(a, b *checked) int {
	now := time.Now()
	return cmp.Or(
		cmp.Compare(p.allowanceOf(networkOf(b.address), now).left, p.allowanceOf(networkOf(a.address), now).left),
		cmp.Compare(p.allowanceOf(b.address, now).left, p.allowanceOf(a.address, now).left),
	)
}

// next gives one of those that wait the turn once the rest is over; mu is held.
func (p *passwords) next() {
	if p.busy || len(p.waiting) == 0 {
		return
	}
	p.busy = true
	time.AfterFunc(time.Until(p.rest), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.waiting) == 0 {
			p.busy = false
			return
		}
		first := slices.MinFunc(p.waiting, p.order)
		p.waiting = slices.DeleteFunc(p.waiting, func(w *checked) bool { return w == first })
		close(first.turn)
	})
}

// decided is the result for a password that is not checked now.
func decided(right bool, wait time.Duration) *checked {
	c := &checked{done: make(chan struct{}), right: right, wait: wait}
	close(c.done)
	return c
}

// leave lets those know who have the same password, and the next one have the turn.
func (p *passwords) leave(id [32]byte, c *checked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-c.turn:
		p.busy = false
	default:
		p.waiting = slices.DeleteFunc(p.waiting, func(w *checked) bool { return w == c })
		p.allowanceOf(c.address, time.Now()).left++ // bounded when it is used next
	}
	p.next()
	delete(p.checking, id)
	close(c.done)
}

// note takes the outcome of a check.
func (p *passwords) note(id [32]byte, address string, ok bool, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !ok {
		p.counts[passwordWrong]++
		p.allowanceOf(networkOf(address), now).left--
		p.rest = now.Add(restAfterWrong * took)
		return
	}
	p.counts[passwordRight]++
	a := p.allowanceOf(address, now)
	a.left = min(a.left+1, checkBurst)
	for other, until := range p.good {
		if len(p.good) >= maxRemembered || now.After(until) {
			delete(p.good, other)
		}
	}
	p.good[id] = now.Add(rememberFor)
}

// allowanceOf returns what an address has left.
func (p *passwords) allowanceOf(address string, now time.Time) *allowance {
	a := p.addresses[address]
	if a == nil && len(p.addresses) >= maxAddresses {
		for other, of := range p.addresses {
			if of.left+float64(now.Sub(of.at))/float64(checkEvery) >= checkBurst { // it has all of it, again or still
				delete(p.addresses, other)
			}
		}
		if len(p.addresses) >= maxAddresses {
			address = ""
			a = p.addresses[address]
		}
	}
	if a == nil {
		a = &allowance{checkBurst, now}
		p.addresses[address] = a
	}
	a.left = min(a.left+float64(now.Sub(a.at))/float64(checkEvery), checkBurst)
	a.at = now
	return a
}

// substitute is the hash of some user, the same one for each name that nobody has: a check of it
// takes as long.
func (p *passwords) substitute(users map[string]string, name string) string {
	digest := p.digest(name)
	hashes := make([]string, 0, len(users))
	for _, hash := range users {
		hashes = append(hashes, hash)
	}
	slices.Sort(hashes)
	return hashes[binary.LittleEndian.Uint64(digest[:])%uint64(len(hashes))]
}

// digest is a hash with the key of this process.
func (p *passwords) digest(parts ...string) (d [32]byte) {
	h := hmac.New(sha256.New, p.key[:])
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	h.Sum(d[:0])
	return d
}

func (p *passwords) state() map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// addressOf is what requests are bounded by: an IPv4 address, the network of 64 bits of an IPv6
// address, or the user at a Unix socket.
func addressOf(r *http.Request) string {
	if conn, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		if local, ok := conn.Conn.(*net.UnixConn); ok {
			return "user " + userOf(local)
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64) // fits any IPv6 address
	return network.String()
}

// networkOf is the network of an address: of 16 bits for IPv4 and of 32 bits for IPv6, as far as
// one operator has them.
func networkOf(address string) string {
	prefix, err := netip.ParsePrefix(address)
	bits := 32
	if err != nil {
		ip, err := netip.ParseAddr(address)
		if err != nil {
			return "network of " + address
		}
		prefix, bits = netip.PrefixFrom(ip, ip.BitLen()), 16
	}
	network, _ := prefix.Addr().Prefix(bits) // fits
	if prefix.Addr().IsLoopback() {
		return "network of this host"
	}
	return "network " + network.String()
}

// userOf is who connected to a Unix socket.
func userOf(conn *net.UnixConn) string {
	const unknown = "unknown"
	raw, err := conn.SyscallConn()
	if err != nil {
		return unknown
	}
	who := unknown
	_ = raw.Control(func(fd uintptr) { // fails only if the connection is closed
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			who = strconv.FormatUint(uint64(peer.Uid), 10)
		}
	})
	return who
}
