package main

import (
	"bytes"
	"fmt"
	"math"
)

// curve is one line of a panel; its points lie at the panel's xs.
type curve struct {
	name, color string
	ys          []float64
}

// panel is a plot of curves over a logarithmic axis of agents.
type panel struct {
	title  string
	xs     []int
	curves []curve
}

const (
	panelWidth, panelHeight     = 380, 260
	marginLeft, marginRight     = 62, 24
	marginTop, marginBottom     = 34, 44
	productColor, referenceGray = "#1f6feb", "#8b949e"
)

// plot draws the report: what a fleet settles, what a task costs, how long an
// offer takes, over the number of agents (SVG 1.1).
func (r fleetReport) plot() []byte {
	var xs []int
	for _, s := range r.Sizes {
		xs = append(xs, s.Agents)
	}
	both := func(title string, of func(fleetMeasure) float64) panel {
		product, reference := curve{name: "fleetledger", color: productColor}, curve{name: "bare ceiling", color: referenceGray}
		for _, s := range r.Sizes {
			product.ys = append(product.ys, s.median(func(r fleetRound) float64 { return of(r.Product) }))
			reference.ys = append(reference.ys, s.median(func(r fleetRound) float64 { return of(r.Reference) }))
		}
		return panel{title, xs, []curve{product, reference}}
	}
	panels := []panel{
		both("tasks settled per second", func(m fleetMeasure) float64 { return m.Settled.PerSecond }),
		both("server CPU, ms a task", func(m fleetMeasure) float64 { return m.TaskCPUms }),
		both("offer p99, ms, at one an agent a second", func(m fleetMeasure) float64 { return m.Offers.P99ms }),
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", panelWidth*len(panels), panelHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d 0)">`+"\n", i*panelWidth)
		p.draw(&b)
		fmt.Fprint(&b, "</g>\n")
	}
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}

func (p panel) draw(b *bytes.Buffer) {
	const width, height = panelWidth - marginLeft - marginRight, panelHeight - marginTop - marginBottom
	top := 0.0
	for _, c := range p.curves {
		for _, y := range c.ys {
			top = max(top, y)
		}
	}
	step := roundStep(top / 4)
	top = step * math.Ceil(max(top, step)/step)
	first, last := math.Log(float64(p.xs[0])), math.Log(float64(p.xs[len(p.xs)-1]))
	x := func(n int) float64 {
		if first == last {
			return marginLeft + width/2
		}
		return marginLeft + width*(math.Log(float64(n))-first)/(last-first)
	}
	y := func(v float64) float64 { return marginTop + height*(1-v/top) }

	fmt.Fprintf(b, `<text x="%d" y="16" font-size="13">%s</text>`+"\n", marginLeft, p.title)
	for v := 0.0; v <= top+step/2; v += step {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#d0d7de"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			marginLeft, panelWidth-marginRight, y(v), y(v), marginLeft-6, y(v)+4, math.Round(v*1e6)/1e6)
	}
	for _, n := range p.xs {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(n), marginTop+height+16, n)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">agents</text>`+"\n", marginLeft+width/2, marginTop+height+34)
	for i, c := range p.curves {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, c.color)
		for j, v := range c.ys {
			fmt.Fprintf(b, "%.1f,%.1f ", x(p.xs[j]), y(v))
		}
		fmt.Fprint(b, `"/>`+"\n")
		for j, v := range c.ys {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x(p.xs[j]), y(v), c.color)
		}
		fmt.Fprintf(b, "\n"+`<text x="%d" y="%d" fill="%s">%s</text>`+"\n", marginLeft+8+110*i, marginTop-4, c.color, c.name)
	}
}

// roundStep is the next 1, 2 or 5 times a power of ten that is not below v.
func roundStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
