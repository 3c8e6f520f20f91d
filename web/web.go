// Package web has the pages of the agent as one script and one style sheet. They are built from src
// by "make web" and committed, so that building the agent needs no node.
package web

import (
	_ "embed"
)

// Script and Style are what a page loads. Script draws the data in an element with the id data, or
// else that of a running agent, in the element with the id app.
var (
	//go:embed dist/app.js
	Script string
	//go:embed dist/app.css
	Style string
	// Notices are the licences of the libraries in Script.
	//
	//go:embed dist/notices.txt
	Notices string
)
