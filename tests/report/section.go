package report

import (
	"fmt"
	"os"
	"strings"
)

// Update replaces the generated section of that name in the file: what stands between the lines
// <!-- begin NAME --> and <!-- end NAME -->, which stay.
func Update(path, name, text string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update documentation: %w", err)
	}
	updated, err := replace(string(file), name, text)
	if err != nil {
		return fmt.Errorf("update %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(updated), 0o644); err != nil {
		return fmt.Errorf("update documentation: %w", err)
	}
	return nil
}

func replace(file, name, text string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(file, begin)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(begin))
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("no line %q", end)
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}

// Section returns the generated section of that name in the file, without blank lines around it.
func Section(path, name string) (string, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read documentation: %w", err)
	}
	_, rest, begins := strings.Cut(string(file), "<!-- begin "+name+" -->\n")
	text, _, ends := strings.Cut(rest, "<!-- end "+name+" -->")
	if !begins || !ends {
		return "", fmt.Errorf("%s has no section %q", path, name)
	}
	return strings.TrimSpace(text), nil
}
