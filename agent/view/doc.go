// Package view is the wing of what people and machines see of closed windows.
//
//   - sink writes them: pprof, pages, collapsed stacks, speedscope, text; its room prom exports
//     metrics
//   - report reads stored profiles: tables, differences, flame graphs
//   - history keeps windows on disk, and httpd serves them: profiles, pages and their data
//   - top is the model of the terminal view
//   - audit compares the cost of two sides; advise says what a compiler could do with a profile
//   - price, rule and program compute further numbers: by a model of prices, by rules, by a program
//     of the user
//
// Its rooms import the wings host and model, never probe, guest or collect: whatever they need of a
// program is in its profile.
package view
