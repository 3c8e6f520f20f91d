// Package calls measures how often calls are made. A timer shows where time goes; a short and
// frequent call hides from it (Arnold & Grove, "Collecting and Exploiting High-Accuracy Call Graph
// Profiles in Virtual Machines", CGO 2005, figure 1). Engines sample calls instead, each for the
// runtimes that it understands and by the means that the machine has. This package holds what they
// share; each engine is a package below it.
package calls
