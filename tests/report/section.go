package report

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Update replaces the generated section of that name in the file: what stands between the lines
// <!-- begin NAME --> and <!-- end NAME -->, which stay. If path is a directory, the file is the
// page below it that has the section.
func Update(path, name, text string) error {
	path, err := Page(path, name)
	if err != nil {
		return fmt.Errorf("update documentation: %w", err)
	}
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

// Page returns path, or, if that is a directory, the only page below it that has the generated
// section of that name.
func Page(path, name string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return path, err
	}
	var found []string
	err = filepath.WalkDir(path, func(page string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(page) != ".md" {
			return err
		}
		text, err := os.ReadFile(page)
		if strings.Contains(string(text), "<!-- begin "+name+" -->\n") {
			found = append(found, page)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d pages below %s have a section %q, not one: %q", len(found), path, name, found)
	}
	return found[0], nil
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
