package cpython

import (
	"path"
	"strings"
)

// functionName is what people call a function: the module and the qualified name, as
// json.decoder.JSONDecoder.decode. The module is that of the file, as code objects do not say in
// which module they are.
func functionName(file, name string) string {
	if module := moduleName(file); module != "" {
		return module + "." + name
	}
	return name
}

// moduleName is the module of a file: the part of its path below a directory that Python searches,
// with dots, as far as that directory can be recognised. Otherwise it is the name of the file, as
// that of a script. What is no file (<string>) stays as it is.
func moduleName(file string) string {
	if frozen, ok := strings.CutPrefix(file, "<frozen "); ok {
		return strings.TrimSuffix(frozen, ">")
	}
	if file == "" || strings.HasPrefix(file, "<") {
		return file
	}
	file = path.Clean(file)
	rest, installed := installedPath(file)
	if !installed {
		rest = path.Base(file)
	}
	for _, suffix := range []string{".py", ".pyc", ".pyw"} {
		rest = strings.TrimSuffix(rest, suffix)
	}
	switch dir, base := path.Dir(rest), path.Base(rest); {
	case base == "__init__" && installed && dir != ".":
		rest = dir
	case base == "__init__":
		rest = path.Base(path.Dir(file))
	case base == "__main__" && !installed:
		rest = path.Base(path.Dir(file)) + ".__main__"
	}
	return strings.ReplaceAll(strings.Trim(rest, "/"), "/", ".")
}

// installedPath is the path of a file below a directory of installed modules: the standard library,
// or packages. ok is false if it is in neither.
func installedPath(file string) (rest string, ok bool) {
	for _, dir := range []string{"/site-packages/", "/dist-packages/"} {
		if rest, ok := afterLast(file, dir); ok {
			return rest, true
		}
	}
	// .../lib/python3.11/json/decoder.py, .../python311.zip/json/decoder.py
	rest, ok = afterLast(file, "/python")
	if !ok {
		return "", false
	}
	version, rest, ok := strings.Cut(rest, "/")
	version = strings.TrimSuffix(version, ".zip")
	if !ok || version == "" || strings.Trim(version, "0123456789.t") != "" {
		return "", false
	}
	return strings.TrimPrefix(rest, "lib-dynload/"), true
}

// afterLast is what follows the last occurrence of a text. ok is false if there is none.
func afterLast(s, text string) (rest string, ok bool) {
	at := strings.LastIndex(s, text)
	if at < 0 {
		return "", false
	}
	return s[at+len(text):], true
}
