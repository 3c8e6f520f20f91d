package profiler

import (
	"io"
	"net/http"
	"testing"
)

// Get returns what a server answers, and ends the test if it does not.
func Get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
