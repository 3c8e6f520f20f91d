package cpython

import "testing"

func TestFunctionName(t *testing.T) {
	for _, test := range []struct{ file, name, want string }{
		{"/srv/shop/main.py", "handler", "main.handler"},
		{"/srv/shop/main.py", "<module>", "main.<module>"},
		{"main.py", "Cart.total", "main.Cart.total"},
		{"/usr/lib/python3.11/json/decoder.py", "JSONDecoder.decode", "json.decoder.JSONDecoder.decode"},
		{"/usr/lib/python3.11/json/__init__.py", "loads", "json.loads"},
		{"/usr/lib/python3/dist-packages/yaml/loader.py", "f", "yaml.loader.f"},
		{"/srv/venv/lib/python3.13t/site-packages/flask/app.py", "Flask.run", "flask.app.Flask.run"},
		{"/usr/lib/python311.zip/json/scanner.py", "f", "json.scanner.f"},
		{"/home/python/app/main.py", "f", "main.f"},
		{"/srv/shop/cart/__init__.py", "f", "cart.f"},
		{"/srv/shop/cart/__main__.py", "main", "cart.__main__.main"},
		{"/usr/lib/python3.12/http/__main__.py", "main", "http.__main__.main"},
		{"<frozen importlib._bootstrap>", "_find_and_load", "importlib._bootstrap._find_and_load"},
		{"<string>", "f", "<string>.f"},
		{"", "f", "f"},
		{"/srv/templates/index.html", "root", "index.html.root"},
		{"/", "f", "f"},
	} {
		if got := functionName(test.file, test.name); got != test.want {
			t.Errorf("%s of %s: %s, want %s", test.name, test.file, got, test.want)
		}
	}
}

func TestRecognise(t *testing.T) {
	for file, want := range map[string]bool{
		"/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0": true, "/opt/lib/libpython3.13t.so.1.0": true,
		"/usr/bin/python3.11": true, "/usr/bin/python3": true, "/usr/bin/python": true,
		"/usr/bin/python3.13t": true, "/usr/bin/python3.11 (deleted)": true,
		"/opt/lib/libpython3.so": false, // it only leads to another one
		"/usr/bin/python2.7":     false, "/usr/bin/pythonize": false, "/usr/bin/python3-config": false,
		"/usr/lib/libpython2.7.so.1.0": false, "/usr/lib/jvm/lib/server/libjvm.so": false, "": false,
		"/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so": false,
	} {
		if got := (Runtime{}).Recognise(file); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

func TestVersion(t *testing.T) {
	for v, want := range map[version]string{
		0x030b02f0: "3.11.2", 0x030d00c2: "3.13.0rc2", 0x030a0000: "3.10", 0x030e00a7: "3.14.0a7",
	} {
		if got := v.String(); got != want {
			t.Errorf("%#x: %s, want %s", uint32(v), got, want)
		}
	}
}
