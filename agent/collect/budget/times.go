package budget

import "time"

// Times is one reading of the CPU time that processes have used, by their identifiers: the base of
// budgets. Use is known between two readings only, so a process counts from its second reading on.
type Times map[uint32]time.Duration

// Until is what all processes have used from this reading until later. Time before their first
// reading does not count.
func (t Times) Until(later Times) (sum time.Duration) {
	for process, used := range later {
		if before, ok := t[process]; ok && used > before {
			sum += used - before
		}
	}
	return sum
}

// Each is how many CPUs each process has used from this reading until later, which is so much
// later, by its identifier.
func (t Times) Each(later Times, passed time.Duration) map[uint32]float64 {
	cpus := make(map[uint32]float64, len(later))
	for process, used := range later {
		if before, ok := t[process]; ok {
			cpus[process] = max(used-before, 0).Seconds() / passed.Seconds()
		}
	}
	return cpus
}

// Lacks reports whether later has processes that this reading lacks.
func (t Times) Lacks(later Times) bool {
	for process := range later {
		if _, ok := t[process]; !ok {
			return true
		}
	}
	return false
}

// Add adds processes that are new.
func (t Times) Add(later Times) {
	for process, used := range later {
		if _, ok := t[process]; !ok {
			t[process] = used
		}
	}
}
