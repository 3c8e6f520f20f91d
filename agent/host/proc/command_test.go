package proc

import (
	"os"
	"os/exec"
	"path/filepath"
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
		{"java -classpath x -jar /opt/shop/shop-1.2.jar server", "", "shop"},
		{"java --add-opens java.base/java.lang=ALL-UNNAMED --add-modules=a.b --enable-preview com.acme.Shop", "",
			"com.acme.Shop"},
		{"java -p mods -m com.acme.shop/com.acme.Main x", "", "com.acme.Main"},
		{"java --module=com.acme.shop", "", "com.acme.shop"},
		{"java --module-path mods --module com.acme.shop/com.acme.Main", "", "com.acme.Main"},
		{"java @args com/acme/Shop", "", "com.acme.Shop"},
		{"java --source 21 tools/Hello.java x", "", "Hello"},
		{"java -Dspring.application.name=orders -jar app.jar", "", "orders"},
		{"java -jar app.jar -Dspring.application.name=orders", "", "app"},
		{"java -Dspring.application.name=orders -jar app.jar", "HOME=/ OTEL_SERVICE_NAME=checkout", "checkout"},
		{"java -jar app.jar", "OTEL_SERVICE_NAME=", "app"},
		{"java -jar shop-1.2.3-SNAPSHOT-all.jar", "", "shop"},
		{"java -jar /opt/jenkins.war", "", "jenkins"},
		{"java.real -jar x.jar", "", "x"},
		{"jsvc.exec -user tomcat -cp x.jar -pidfile /run/x.pid -outfile SYSLOG com.acme.Daemon", "", "com.acme.Daemon"},
		{"java --disable-@files com.acme.Shop", "", "com.acme.Shop"},
		{"java -jar app.jar", "SPRING_APPLICATION_NAME=orders", "orders"},
		{"java -jar app.jar", "OTEL_RESOURCE_ATTRIBUTES=a=b,service.name=checkout SPRING_APPLICATION_NAME=orders",
			"checkout"},
		{"java -Dotel.service.name=front -jar app.jar", "OTEL_SERVICE_NAME=checkout", "front"},
		{"java -jar app.jar", "JAVA_TOOL_OPTIONS=-Dspring.application.name=orders", "orders"},
		{"java -Dspring.application.name=here -jar app.jar", "JDK_JAVA_OPTIONS=-Dspring.application.name=there",
			"here"},
		{"java -Dspring.application.name=a -jar app.jar --spring.application.name=b", "", "b"},
		{"java --spring.application.name=b com.acme.Shop", "", "com.acme.Shop"},
		{"java org.springframework.boot.loader.launch.JarLauncher", "", "JarLauncher"},
		{"java -Dcatalina.base=/srv/shop/tomcat-9.0.1 org.apache.catalina.startup.Bootstrap start", "", "tomcat"},
		{"java org.apache.catalina.startup.Bootstrap start", "CATALINA_BASE=/srv/shop/current", "shop"},
		{"java -version", "", ""},
		{"java -jar", "", ""},
		{"java -cp", "", ""},
		{"java", "", ""},
		{"", "OTEL_SERVICE_NAME=checkout", ""},
		{"nginx -g daemon", "OTEL_SERVICE_NAME=checkout", ""},
		{"java \x1b[2J\u202eShop", "", "?[2J?Shop"},
	} {
		if got := ApplicationOf(&Launch{Arguments: strings.Fields(test.command),
			Environment: strings.Fields(test.environment)}).Name; got != test.want {
			t.Errorf("%q, %q: %q, want %q", test.command, test.environment, got, test.want)
		}
	}
}

func FuzzApplication(f *testing.F) {
	f.Add("java\x00-jar\x00a.jar", "OTEL_SERVICE_NAME=x")
	f.Add("java\x00--module\x00/", "")
	f.Fuzz(func(t *testing.T, arguments, environment string) {
		if name := ApplicationOf(&Launch{Arguments: strings.Split(arguments, "\x00"),
			Environment: strings.Split(environment, "\x00")}).Name; len(name) > maxName || !utf8.ValidString(name) {
			t.Errorf("%q", name)
		}
	})
}

// Arguments and environment are those that a program was started with, cut to the bound.
func TestArguments(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	cmd := exec.CommandContext(t.Context(), "cat", "-", long, long, long) // cat waits for its input
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
	// The kernel may still be at it.
	for deadline := time.Now().Add(time.Minute); err == nil && len(arguments) == 0 && time.Now().Before(deadline); {
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

func TestWithoutVersion(t *testing.T) {
	for name, want := range map[string]string{
		"shop-1.2.3.jar": "shop", "shop.jar": "shop", "shop-1.jar": "shop", "shop-v2.jar": "shop",
		"shop_2.13-1.0.jar": "shop", "h2-2.1.214.jar": "h2",
		"shop-1.2.3-20240102.030405-7.jar": "shop", "shop-1.2.3.RELEASE.jar": "shop", "shop-1.0-rc1-exec.jar": "shop",
		"shop-1.2.3+g1a2b3c4.jar": "shop",
		"log4j-1.2-api.jar":       "log4j-1.2-api", "foo-2d-engine.jar": "foo-2d-engine", "1.2.jar": "1.2",
		"-1.jar":       "-1",
		"shop-api.war": "shop-api", "": "",
	} {
		if got := withoutVersion(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestSplitOptions(t *testing.T) {
	for text, want := range map[string][]string{
		"a b\n c": {"a", "b", "c"}, `-Dx="a b" 'c d'`: {"-Dx=a b", "c d"}, "# all\na # rest\nb": {"a", "b"},
		`"a\"b\\"`: {`a"b\`}, `""`: {""}, "": nil, `"open`: {"open"},
	} {
		if got := splitOptions(text, 10); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := splitOptions("a b c", 2); len(got) != 2 {
		t.Errorf("%q is more than the bound", got)
	}
}

// What java is to run may be in a file, as its own root and working directory have it.
func TestArgumentFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"options": "-cp \"a b\"\n-Dspring.application.name=orders",
		"main": "com.acme.Shop"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string][]string{
		"java @options @" + dir + "/main @main": {"java", "-cp", "a b", "-Dspring.application.name=orders",
			"com.acme.Shop", "com.acme.Shop"},
		"java @missing X":                    {"java", "X"},
		"java X @main":                       {"java", "X", "@main"},
		"java -cp x -jar x.jar @main":        {"java", "-cp", "x", "-jar", "x.jar", "@main"},
		"java @@x --disable-@files @options": {"java", "@x", "--disable-@files", "@options"},
		"java " + strings.Repeat("@main ", 20) + "-x": append(append([]string{"java"},
			slices.Repeat([]string{"com.acme.Shop"}, maxArgumentFiles)...), "-x"),
	} {
		if got := expand(Root("").launchFiles(os.Getpid(), new([]error)), dir,
			strings.Fields(command)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
