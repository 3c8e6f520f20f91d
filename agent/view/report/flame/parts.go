package flame

import (
	"maps"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

const (
	// maxFlameCells bounds the values by part and node of a page, each about 7 bytes.
	maxFlameCells = 25_000
	// leastParts is how many parts there must be: fewer are of no use.
	leastParts = 4
)

// A flameCell is what a node has in a window, without those below it.
type flameCell struct{ value, count float64 }

func (c flameCell) plus(o flameCell) flameCell {
	return flameCell{c.value + o.value, c.count + o.count}
}

// flameParts are the values of nodes by time, in columns. A part is one or more neighbouring
// windows.
type flameParts struct {
	Start   []int64     `json:"start"` // ms since 1970
	End     []int64     `json:"end"`
	Seconds []float64   `json:"seconds"`
	Node    [][]int32   `json:"node"` // by part: places in nodes, each as the difference to the one before
	Count   [][]float64 `json:"count"`
	Self    [][]float64 `json:"self,omitempty"`
	Each    float64     `json:"each,omitempty"` // self by count, if that is the same everywhere: then there is no Self
}

// parts are the values by time, in as many parts as there is room for; nil if these would be too
// few.
func (f *Graph) parts() *flameParts {
	type part struct {
		bars  []flameBar
		cells map[cct.NodeID]flameCell
	}
	var parts []part
	total := maxFlameCells + 1
	for together := 1; total > maxFlameCells; together *= 2 {
		if len(f.bars) < leastParts*together {
			return nil
		}
		parts, total = nil, 0
		for bars := range slices.Chunk(f.bars, together) {
			p := part{bars, make(map[cct.NodeID]flameCell)}
			for _, bar := range bars {
				for node, c := range bar.cells {
					p.cells[node] = p.cells[node].plus(c)
				}
			}
			total += len(p.cells)
			parts = append(parts, p)
		}
	}
	if total == 0 {
		return nil
	}
	out := new(flameParts)
	each, same := 0.0, true
	for _, p := range parts {
		last := p.bars[len(p.bars)-1]
		out.Start, out.End = append(out.Start, p.bars[0].start.UnixMilli()),
			append(out.End, last.start.Add(last.duration).UnixMilli())
		seconds := 0.0
		for _, bar := range p.bars {
			seconds += bar.duration.Seconds()
		}
		out.Seconds = append(out.Seconds, math.Round(1000*seconds)/1000)
		nodes, counts, self := []int32{}, []float64{}, []float64{}
		before := int32(0)
		for _, node := range slices.Sorted(maps.Keys(p.cells)) {
			c := p.cells[node]
			nodes, counts, self = append(nodes, int32(node)-1-before), append(counts, c.count), append(self, c.value)
			before = int32(node) - 1
			if c.count > 0 && each == 0 {
				each = c.value / c.count
			}
			same = same && c.count > 0 && math.Abs(c.value-each*c.count) <= 1e-6*c.value
		}
		out.Node, out.Count, out.Self = append(out.Node, nodes), append(out.Count, counts), append(out.Self, self)
	}
	if same {
		out.Self, out.Each = nil, each
	}
	return out
}

// placeCells moves the cells of all windows to other nodes.
func placeCells(bars []flameBar, place []cct.NodeID) []flameBar {
	bars = slices.Clone(bars)
	for i := range bars {
		if bars[i].cells == nil {
			continue
		}
		cells := make(map[cct.NodeID]flameCell, len(bars[i].cells))
		for node, c := range bars[i].cells {
			cells[place[node]] = cells[place[node]].plus(c)
		}
		bars[i].cells = cells
	}
	return bars
}
