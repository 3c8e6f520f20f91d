// el makes an element. Strings become text, never markup: names come from the programs that were profiled.
export function el(tag, attributes = {}, ...children) {
	const element = document.createElement(tag);
	for (const [key, value] of Object.entries(attributes)) {
		if (value === undefined || value === null || value === false) continue;
		if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
		else if (key in element && typeof value === "boolean") element[key] = value;
		else element.setAttribute(key, value);
	}
	element.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
	return element;
}

export function fill(element, ...children) {
	element.replaceChildren(...children.filter((c) => c !== null && c !== undefined && c !== false));
	return element;
}

const svgNS = "http://www.w3.org/2000/svg";

// svg makes an element of a drawing.
export function svg(tag, attributes = {}, ...children) {
	const element = document.createElementNS(svgNS, tag);
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
	element.append(...children);
	return element;
}
