package proc

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestApplication(t *testing.T) {
	for _, test := range []struct{ command, environment, want string }{
		{"java com.acme.Shop", "", "com.acme.Shop"},
		{"/usr/lib/jvm/java-17/bin/java -Xmx1g -cp a.jar:b.jar com.acme.Shop --port 80", "", "com.acme.Shop"},
		{"java -classpath x -jar /opt/shop/shop-1.2.jar server", "", "shop-1.2"},
		{"java --add-opens java.base/java.lang=ALL-UNNAMED --add-modules=a.b --enable-preview com.acme.Shop", "", "com.acme.Shop"},
		{"java -p mods -m com.acme.shop/com.acme.Main x", "", "com.acme.Main"},
		{"java --module=com.acme.shop", "", "com.acme.shop"},
		{"java --module-path mods --module com.acme.shop/com.acme.Main", "", "com.acme.Main"},
		{"java @args com/acme/Shop", "", "com.acme.Shop"},
		{"java --source 21 tools/Hello.java x", "", "Hello"},
		{"java -Dspring.application.name=orders -jar app.jar", "", "orders"},
		{"java -jar app.jar -Dspring.application.name=orders", "", "app"},
		{"java -Dspring.application.name=orders -jar app.jar", "HOME=/ OTEL_SERVICE_NAME=checkout", "checkout"},
		{"java -jar app.jar", "OTEL_SERVICE_NAME=", "app"},
		{"java -version", "", ""},
		{"java -jar", "", ""},
		{"java -cp", "", ""},
		{"java", "", ""},
		{"", "OTEL_SERVICE_NAME=checkout", ""},
		{"nginx -g daemon", "OTEL_SERVICE_NAME=checkout", ""},
		{"java \x1b[2J\u202eShop", "", "?[2J?Shop"},
	} {
		if got := Application(strings.Fields(test.command), strings.Fields(test.environment)); got != test.want {
			t.Errorf("%q, %q: %q, want %q", test.command, test.environment, got, test.want)
		}
	}
}

func FuzzApplication(f *testing.F) {
	f.Add("java\x00-jar\x00a.jar", "OTEL_SERVICE_NAME=x")
	f.Add("java\x00--module\x00/", "")
	f.Fuzz(func(t *testing.T, arguments, environment string) {
		if name := Application(strings.Split(arguments, "\x00"), strings.Split(environment, "\x00")); len(name) > maxName || !utf8.ValidString(name) {
			t.Errorf("%q", name)
		}
	})
}

// Arguments and environment are those that a program was started with, cut to the bound.
func TestArguments(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	cmd := exec.CommandContext(t.Context(), "cat", "-", long, long, long) // which waits for its input
	cmd.Env = []string{"OTEL_SERVICE_NAME=checkout", "EMPTY="}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	arguments, err := Root("").Arguments(cmd.Process.Pid)
	for deadline := time.Now().Add(time.Minute); err == nil && len(arguments) == 0 && time.Now().Before(deadline); { // the kernel is still at it
		arguments, err = Root("").Arguments(cmd.Process.Pid)
	}
	if err != nil || len(arguments) < 3 || arguments[0] != "cat" || arguments[2] != long {
		t.Errorf("%d arguments, %v", len(arguments), err)
	}
	total := 0
	for _, arg := range arguments {
		total += len(arg) + 1
	}
	if total > maxCommand+1 {
		t.Errorf("%d bytes of arguments", total)
	}
	if environment, err := Root("").Environment(cmd.Process.Pid); err != nil || !slices.Equal(environment, cmd.Env) {
		t.Errorf("%q, %v", environment, err)
	}
	if _, err := Root("").Arguments(1 << 30); err == nil {
		t.Error("a process that does not exist has arguments")
	}
	if _, err := Root("").Environment(os.Getpid()); err != nil {
		t.Error(err)
	}
}
