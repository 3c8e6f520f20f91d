package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// planKnown has a section for each study.
func planKnown(jdks []jvm.JDK, o options) (sections []section) {
	for _, study := range eventStudies {
		s := &knownEvents{study: study}
		for _, t := range study.trials(jdks, o.short) {
			if o.run.MatchString(t.String()) {
				s.trials = append(s.trials, t)
			}
		}
		sections = append(sections, s)
	}
	return sections
}

// collectors are the JVM's, by their flags -XX:+Use…GC.
var collectors = []string{"Serial", "Parallel", "G1", "Z", "Shenandoah"}

// trials are all that the study has, or in short those on the oldest JDK that take few seconds.
func (s eventStudy) trials(jdks []jvm.JDK, short bool) (trials []eventTrial) {
	if short || s == enterStudy {
		jdks = jdks[:1] // free monitors are recognised in the code of JDK 17
	}
	if s == valueStudy {
		for _, every := range valueIntervals {
			trials = append(trials, eventTrial{study: s, setting: fmt.Sprintf("every %d", every)})
		}
		return trials
	}
	threads, settings := []int{1, 4}, []string{""}
	switch s {
	case lockStudy:
		threads = []int{2, 4}
	case pauseStudy:
		threads, settings = []int{2}, collectors
	case faultStudy:
		threads = []int{1}
	}
	if short {
		threads, settings = threads[len(threads)-1:], settings[len(settings)/2:len(settings)/2+1] // of collectors, G1
	}
	for _, jdk := range jdks {
		for _, setting := range settings {
			for _, n := range threads {
				trials = append(trials, eventTrial{study: s, jdk: jdk, threads: n, setting: setting})
			}
		}
	}
	return trials
}
