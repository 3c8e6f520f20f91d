package events

import (
	"math/rand/v2"
	"sort"
)

// A Cell is a part of the exact distribution of allocations: objects of one class, taken as all of
// the same size.
type Cell struct {
	Class          string
	Objects, Bytes float64
}

// Cells are the rows as a distribution, a cell for each. The rows' values must be objects and
// bytes. Where objects of a row are of different sizes, their mean stands for all, and chance has
// more to do with the number of objects than it seems.
func Cells(exact []Row) []Cell {
	cells := make([]Cell, 0, len(exact))
	for _, row := range exact {
		cells = append(cells, Cell{Class: row.Class, Objects: row.Values[0], Bytes: row.Values[1]})
	}
	return cells
}

// An Overlap is how much of the bytes and of the objects lies in the same classes, 0 to 100 each.
type Overlap struct{ Bytes, Objects float64 }

// Compare returns the overlap of samples with exact counts. The values of both must be objects and
// bytes.
func Compare(sampled, exact []Row) Overlap {
	return Overlap{
		Objects: ByClass(sampled, 0).Overlap(ByClass(exact, 0)),
		Bytes:   ByClass(sampled, 1).Overlap(ByClass(exact, 1)),
	}
}

// Ideal is the overlap to be expected of n samples without any error but chance: each is an object
// drawn with a probability in proportion to its size, stands for as many bytes as any other, and
// for as many objects as these bytes are of its size. It is the mean of so many simulations; the
// same seed gives the same one.
//
// Objects outside of allocation buffers are all sampled, so that reality may be a little better.
func Ideal(exact []Cell, n, simulations int, seed uint64) Overlap {
	d := newDistribution(exact)
	if len(d.cells) == 0 || n <= 0 || simulations <= 0 {
		return Overlap{}
	}
	random := rand.New(rand.NewPCG(seed, seed))
	var sum Overlap
	for range simulations {
		one := d.draw(n, random)
		sum.Bytes += one.Bytes
		sum.Objects += one.Objects
	}
	return Overlap{Bytes: sum.Bytes / float64(simulations), Objects: sum.Objects / float64(simulations)}
}

// A distribution is what is drawn from: cells with bytes, and the classes that they are of.
type distribution struct {
	cells          []Cell
	class          []int     // index of each cell's class
	upTo           []float64 // bytes of each cell and of all before it
	bytes, objects []float64 // shares of each class, 0 to 1
}

func newDistribution(exact []Cell) *distribution {
	d := &distribution{}
	index := map[string]int{}
	var bytes, objects float64
	for _, cell := range exact {
		if cell.Bytes <= 0 {
			continue
		}
		class, known := index[cell.Class]
		if !known {
			class = len(index)
			index[cell.Class] = class
			d.bytes, d.objects = append(d.bytes, 0), append(d.objects, 0)
		}
		bytes, objects = bytes+cell.Bytes, objects+cell.Objects
		d.bytes[class] += cell.Bytes
		d.objects[class] += cell.Objects
		d.cells, d.class, d.upTo = append(d.cells, cell), append(d.class, class), append(d.upTo, bytes)
	}
	for class := range d.bytes {
		d.bytes[class] /= bytes
		if objects > 0 {
			d.objects[class] /= objects
		}
	}
	return d
}

// draw simulates n samples.
func (d *distribution) draw(n int, random *rand.Rand) Overlap {
	total := d.upTo[len(d.upTo)-1]
	bytes, objects := make([]float64, len(d.bytes)), make([]float64, len(d.bytes))
	var allObjects float64
	for range n {
		at := random.Float64() * total
		cell := min(sort.Search(len(d.upTo), func(i int) bool { return d.upTo[i] > at }), len(d.cells)-1)
		class, stands := d.class[cell], d.cells[cell].Objects/d.cells[cell].Bytes
		bytes[class]++
		objects[class] += stands
		allObjects += stands
	}
	var o Overlap
	for class := range bytes {
		o.Bytes += 100 * min(bytes[class]/float64(n), d.bytes[class])
		if allObjects > 0 {
			o.Objects += 100 * min(objects[class]/allObjects, d.objects[class])
		}
	}
	return o
}
