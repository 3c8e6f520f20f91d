package library

import "time"

// A shelf counts the users of things. A thing without users is kept for a grace period, in case a
// new one comes. The caller locks. The zero value is empty, with no grace.
type shelf[K, U comparable, V any] struct {
	grace time.Duration
	kept  map[K]*shelved[U, V]
	needs map[U][]K
}

type shelved[U comparable, V any] struct {
	value V
	users map[U]struct{}
	idle  time.Duration // CLOCK_MONOTONIC: since when it has no users
}

func (s *shelf[K, U, V]) has(key K) bool {
	_, ok := s.kept[key]
	return ok
}

// take returns the thing with that key, made by create if there is none, and notes that user needs
// it. A user needs a thing once, however often it takes it. woken reports that nobody needed it
// before.
func (s *shelf[K, U, V]) take(key K, user U, create func() V) (value V, woken bool) {
	if s.kept == nil {
		s.kept, s.needs = map[K]*shelved[U, V]{}, map[U][]K{}
	}
	e := s.kept[key]
	if e == nil {
		e = &shelved[U, V]{value: create(), users: map[U]struct{}{}}
		s.kept[key] = e
	}
	woken = len(e.users) == 0
	if _, ok := e.users[user]; !ok {
		e.users[user] = struct{}{}
		s.needs[user] = append(s.needs[user], key)
	}
	return e.value, woken
}

// leave notes that a user needs nothing any more. It returns the things that nobody needs now.
func (s *shelf[K, U, V]) leave(user U, now time.Duration) (idle []V) {
	for _, key := range s.needs[user] {
		e := s.kept[key]
		if delete(e.users, user); len(e.users) == 0 {
			e.idle = now
			idle = append(idle, e.value)
		}
	}
	delete(s.needs, user)
	return idle
}

// expire removes and returns the things that nobody has needed for the grace period. next is the
// earliest time at which another one may expire; more is false if all have users.
func (s *shelf[K, U, V]) expire(now time.Duration) (expired []V, next time.Duration, more bool) {
	for key, e := range s.kept {
		switch until := e.idle + s.grace; {
		case len(e.users) > 0:
		case until <= now:
			delete(s.kept, key)
			expired = append(expired, e.value)
		case !more || until < next:
			next, more = until, true
		}
	}
	return expired, next, more
}
