package jfr

import (
	"strings"
	"testing"
)

func TestConfiguration(t *testing.T) {
	text, err := configuration([]Setting{
		{ExecutionSample, "period", "10 ms"}, {JavaMonitorEnter, "threshold", "1 ms"},
		{JavaMonitorEnter, "stackTrace", "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `<configuration version="2.0">
  <event name="jdk.ExecutionSample">
    <setting name="enabled">true</setting>
    <setting name="period">10 ms</setting>
  </event>
  <event name="jdk.JavaMonitorEnter">
    <setting name="enabled">true</setting>
    <setting name="threshold">1 ms</setting>
    <setting name="stackTrace">true</setting>
  </event>
</configuration>`
	if _, got, _ := strings.Cut(string(text), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
