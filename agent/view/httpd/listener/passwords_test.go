package listener

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// checker has one user, me, with the password "test", and counts how often a password is compared
// with a hash.
func checker() (p *passwords, users map[string]string, compared *atomic.Int64) {
	users, compared = map[string]string{"me": "hash of test"}, new(atomic.Int64)
	p = newPasswords("")
	p.users = func() (map[string]string, error) { return users, nil }
	p.compare = func(hash, password []byte) error {
		compared.Add(1)
		if string(hash) != "hash of "+string(password) {
			return errors.New("wrong")
		}
		return nil
	}
	return p, users, compared
}

// ask sends a request through p. The status is 200 if it arrives with its password, 401 if without.
func ask(p *passwords, address, user, password string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = address
	r.SetBasicAuth(user, password)
	w := httptest.NewRecorder()
	p.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, given := r.BasicAuth(); !given {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})).ServeHTTP(w, r)
	return w
}

// end ends a check that a test has made up.
func (p *passwords) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	p.next()
}

// Wrong passwords of one address are compared a bounded number of times, and those of others all
// the same.
func TestWrongPasswords(t *testing.T) {
	p, _, compared := checker()
	for i := range 1000 {
		want := 401
		if i >= checkBurst {
			want = 429
		}
		w := ask(p, fmt.Sprintf("192.0.2.1:%d", 1000+i), []string{"me", "nobody"}[i%2], fmt.Sprint("guess ", i))
		if w.Code != want || (w.Header().Get("Retry-After") != "") != (want == 429) {
			t.Fatalf("attempt %d: status %d, Retry-After %q, want %d", i, w.Code, w.Header().Get("Retry-After"), want)
		}
	}
	if n := compared.Load(); n != checkBurst {
		t.Errorf("%d passwords were compared, want %d: unknown users count as others do", n, checkBurst)
	}
	if w := ask(p, "192.0.2.2:1", "me", "test"); w.Code != 200 {
		t.Errorf("another address: status %d", w.Code)
	}
	if w := ask(p, "192.0.2.1:1", "me", "test"); w.Code != 200 {
		t.Errorf("the same address, with a password that is remembered: status %d", w.Code)
	}
	if got, want := fmt.Sprint(p.state()), fmt.Sprint(map[string]uint64{"right": 1, "wrong": checkBurst,
		"remembered": 1, "refused": 1000 - checkBurst, "shared": 0}); got != want {
		t.Errorf("counts are %s, want %s", got, want)
	}
}

// A password that was right is not compared again, unless the hash is another one, and costs its
// address nothing.
func TestRightPasswords(t *testing.T) {
	p, users, compared := checker()
	for range 100 {
		if w := ask(p, "192.0.2.1:1", "me", "test"); w.Code != 200 {
			t.Fatalf("status %d", w.Code)
		}
	}
	if n := compared.Load(); n != 1 {
		t.Errorf("compared %d times", n)
	}
	users["me"] = "hash of other"
	if w := ask(p, "192.0.2.1:1", "me", "test"); w.Code != 401 {
		t.Errorf("the former password: status %d", w.Code)
	}
	if w := ask(p, "192.0.2.1:1", "me", "other"); w.Code != 200 {
		t.Errorf("the new password: status %d", w.Code)
	}
	for id := range p.good {
		p.good[id] = time.Now().Add(-time.Second)
	}
	before := compared.Load()
	if w := ask(p, "192.0.2.1:1", "me", "other"); w.Code != 200 || compared.Load() != before+1 || len(p.good) != 1 {
		t.Errorf("after it was forgotten: status %d, %d comparisons, %d are remembered", w.Code, compared.Load()-before,
			len(p.good))
	}
}

// Requests with the same password share one check, as those of a scraper that asks for all kinds at
// once.
func TestPasswordInParallel(t *testing.T) {
	p, _, compared := checker()
	p.busy = true // a check is being made
	const requests = 4 * checkBurst
	ended := make(chan int, requests)
	for range requests {
		go func() { ended <- ask(p, "192.0.2.1:1", "me", "test").Code }()
	}
	wait.For(t, wait.Long, "requests that share a check", func() bool { return p.state()["shared"] == requests-1 })
	p.end()
	for range requests {
		if code := <-ended; code != 200 {
			t.Errorf("status %d", code)
		}
	}
	if n := compared.Load(); n != 1 || len(p.checking) != 0 {
		t.Errorf("compared %d times; %d are being checked", n, len(p.checking))
	}
}

// After a wrong password none is compared for nine times as long.
func TestRestAfterWrongPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, users, _ := checker()
		const took = 20 * time.Millisecond
		p.compare = func([]byte, []byte) error { time.Sleep(took); return errors.New("wrong") }
		began := time.Now()
		for _, address := range []string{"a", "b"} {
			p.check(t.Context(), users, "me", "guess", address)
		}
		if rested := time.Since(began); rested != (2+restAfterWrong)*took {
			t.Errorf("two checks of %v took %v", took, rested)
		}
	})
}

// Only so many checks wait, and so many addresses are known.
func TestPasswordBounds(t *testing.T) {
	p, users, _ := checker()
	p.busy = true // a check is being made
	ended := make(chan time.Duration, 3*maxWaiting)
	for i := range 3 * maxWaiting {
		go func() {
			_, wait := p.check(t.Context(), users, "me", fmt.Sprint("guess ", i), fmt.Sprint(i))
			ended <- wait
		}()
	}
	for range 2 * maxWaiting {
		if wait := <-ended; wait == 0 {
			t.Error("it was checked")
		}
	}
	p.end()
	for range maxWaiting {
		if wait := <-ended; wait != 0 {
			t.Error("it was not checked")
		}
	}
	for i := range 2 * maxAddresses {
		p.mu.Lock()
		p.allowanceOf(fmt.Sprint("address ", i), time.Now()).left = 0
		p.mu.Unlock()
	}
	if n := len(p.addresses); n > maxAddresses+1 {
		t.Errorf("%d addresses are known", n)
	}
	if left := p.allowanceOf("one more", time.Now()).left; left >= 1 {
		t.Errorf("one more address may try %v", left)
	}
	if left := p.allowanceOf("one more", time.Now().Add(time.Hour)).left; left < checkBurst ||
		len(p.addresses) > maxAddresses {
		t.Errorf("an hour later it may try %v, and %d addresses are known", left, len(p.addresses))
	}
}

// Guesses from many addresses of a network do not keep another network from a first login, however
// many wait.
func TestPasswordAmongGuesses(t *testing.T) {
	p, users, _ := checker()
	for i := range checkBurst {
		p.check(t.Context(), users, "me", fmt.Sprint("wrong ", i), "192.0.2.1")
	}
	p.busy = true // a check is being made
	ended := make(chan bool, 2*maxWaiting)
	for i := range maxWaiting {
		go func() {
			ok, _ := p.check(t.Context(), users, "me", fmt.Sprint("guess ", i), fmt.Sprint("192.0.2.", 10+i))
			ended <- ok
		}()
	}
	waiting := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting)
	}
	wait.For(t, wait.Long, "guesses that wait", func() bool { return waiting() == maxWaiting })
	var compared []string
	compare := p.compare
	p.compare = func(hash, password []byte) error { // one at a time
		compared = append(compared, string(password))
		return compare(hash, password)
	}
	go func() {
		ok, _ := p.check(t.Context(), users, "me", "test", "198.51.100.1")
		ended <- ok
	}()
	if <-ended { // a guess made room
		t.Error("a guess is right")
	}
	p.end()
	right := 0
	for range maxWaiting {
		if <-ended {
			right++
		}
	}
	if right != 1 || len(compared) != maxWaiting || compared[0] != "test" {
		t.Errorf("%d passwords were right; compared were %q, want the right one first", right, compared)
	}
}

// Addresses whose passwords are not checked, as too many wait, take no place from others.
func TestPasswordOfManyAddresses(t *testing.T) {
	p, users, _ := checker()
	p.busy = true
	for i := range maxWaiting {
		go p.check(t.Context(), users, "me", fmt.Sprint("guess ", i), "2001:db8::/64")
	}
	wait.For(t, wait.Long, "guesses that wait", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) == checkBurst // as many as the address may try
	})
	for i := range 2 * maxAddresses {
		p.mu.Lock()
		p.allowanceOf(fmt.Sprint("address ", i), time.Now())
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.allowanceOf("one more", time.Now()).left; left != checkBurst || p.addresses[""] != nil {
		t.Errorf("one more address may try %v", left)
	}
}

func TestNetworkOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "network 192.0.0.0/16", "2001:db8:1:2::/64": "network 2001:db8::/32",
		"127.1.2.3": "network of this host", "::/64": "network ::/32", "user 1": "network of user 1",
	} {
		if got := networkOf(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "@",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = remote
		if got := addressOf(r); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
