/* What the page shows (the state that all its scripts share), in which words, and in which colours. */
"use strict";

const NEVER = NeapData.NEVER, $ = (id) => document.getElementById(id);
const facts = {}, devices = {}; /* by number of the device */
const panels = {};              /* stack, map: canvases, geometry, picks */
let words, names, device;       /* of the page, of the trace, the one that is shown */
let ready = false;
let view = null;                /* x0, x1: events or microseconds; y0, y1: bytes; m0, m1: places of addresses */
let cursor = 0;                 /* an event */
let hovered = -1, pinned = -1;  /* numbers of allocations */
let chosen = null;              /* { kind, value, of }: what is not of it is faint */
let fit = false, frame = 0, drag = null;

/* ---- words ---- */

function size(bytes) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
	let unit = 0, value = Math.abs(bytes);
	while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
	if (unit === 0) return bytes + " B";
	let digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	if (Number(value.toFixed(digits)) >= 1024 && unit < units.length - 1) { value /= 1024; unit++; digits = 2; }
	return (bytes < 0 ? "-" : "") + value.toFixed(digits) + " " + units[unit];
}

function count(number) { return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f"); }

function duration(us) {
	if (us < 1000) return us + " us";
	if (us < 1e6) return Number((us / 1000).toPrecision(3)) + " ms";
	if (us < 60e6) return Number((us / 1e6).toPrecision(3)) + " s";
	if (us < 3600e6) return Math.floor(us / 60e6) + " m " + String(Math.floor(us / 1e6) % 60).padStart(2, "0") + " s";
	return Math.floor(us / 3600e6) + " h " + String(Math.floor(us / 60e6) % 60).padStart(2, "0") + " m";
}

function hex(address) { return "0x" + Math.round(address).toString(16); }

function timeOf(event) {
	return device.times && event >= device.from && event < device.to ? device.times[event - device.from] : null;
}

function instant(event) {
	if (event < 0) return "before the first event";
	const time = timeOf(event);
	return "event " + count(event) + (time === null ? "" : ", after " + duration(time)) + stepAt(event);
}

function stepAt(event) {
	const steps = device.steps;
	if (!steps.length) return "";
	let low = 0, high = steps.length;
	while (low < high) { const middle = (low + high) >> 1; if (steps[middle] <= event) low = middle + 1; else high = middle; }
	return ", in the " + nth(low + device.stepsBefore + 1) + " step";
}

function nth(number) {
	const teen = number % 100 > 10 && number % 100 < 14;
	return count(number) + (!teen && ["", "st", "nd", "rd"][number % 10] || "th");
}

/* ---- what an allocation is ---- */

const bytesOf = (life) => device.sizes[device.size[life]];

/* Reserved, and no block's. */
function cachedAt(event) {
	const at = Math.min(Math.max(event, device.from), device.to - 1) - device.from;
	return Math.max(device.reserved.values[at] - device.rounded.values[at], 0) || 0;
}

function sizeClass(bytes) { return Math.min(Math.max(Math.floor(Math.log2(Math.max(bytes, 1))), 9), 62); }

/* A number per holder: the same for the same one (holders.c). */
function holderOf(life) {
	const site = names.callSite[device.stack[life]], freed = names.callSite[device.freedStack[life]];
	if (site) return site * 4;
	if (device.begin[life] < 0 && freed) return freed * 4 + 1;
	return sizeClass(bytesOf(life)) * 4 + 2;
}

function holderText(holder) {
	const number = Math.floor(holder / 4);
	return holder % 4 === 2 ? words.classes[number - 9]
		: (holder % 4 === 1 ? "from before, later freed at " : "") + names.sites[number];
}

const groups = {
	holder: { of: holderOf, text: holderText },
	category: { of: (life) => device.category[life] >> 2, text: (value) => words.categories[value] },
	stream: { of: (life) => device.stream[life], text: (value) => "stream " + words.streams[value] },
	size: { of: (life) => sizeClass(bytesOf(life)), text: (value) => words.classes[value - 9].replace(/, no stack$/, "").replace(/^blocks (of )?/, "") }
};
const groupOfColor = { category: "category", site: "holder", size: "size", stream: "stream" };
const liveAt = (life, event) => device.begin[life] <= event && device.end[life] > event;

/* ---- colours ---- */

const dark = matchMedia("(prefers-color-scheme: dark)");
const hues = { category: [[212, 62, 50], [30, 76, 52], [128, 38, 46], [276, 42, 58], [350, 55, 58], [44, 34, 42], [188, 58, 42], [84, 52, 40], [210, 8, 62]] };

function rgb(h, s, l) {
	s /= 100; l /= 100;
	const part = (n) => {
		const k = (n + h / 30) % 12;
		return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
	};
	return [part(0), part(8), part(4)];
}

function colorOf(kind, value) {
	if (kind === "category") return hues.category[value % 9];
	if (kind === "size") return [250 - (value - 9) * 11 + 360, 52, 54];
	if (kind === "stream") return [(212 + value * 137.5) % 360, 52, 52];
	/* Those that hold the most at the peak are far apart from one another. */
	const rank = device.ranks.get(value);
	if (rank !== undefined) return [(212 + rank * 137.508) % 360, 58 - rank % 3 * 8, 48 + rank % 4 * 4];
	let hash = Math.imul(value + 1, 2654435761) >>> 0;
	hash = (hash ^ hash >>> 15) >>> 0;
	return [hash % 360, 38 + (hash >>> 9) % 18, 50 + (hash >>> 17) % 12];
}

const cssColor = (kind, value) => { const c = colorOf(kind, value); return "hsl(" + c[0] + " " + c[1] + "% " + c[2] + "%)"; };
const packed = (c) => (255 << 24 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0;

function theme() {
	const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
	const three = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
	return { paper: packed(three(get("--card"))), hole: packed(three(get("--soft"))), holeLine: packed(dark.matches ? [72, 80, 88] : [198, 205, 211]),
		text: get("--text"), quiet: get("--quiet"), line: get("--line"), requested: get("--requested"), rounded: get("--rounded"),
		reserved: get("--reserved"), cached: get("--cached"), bad: get("--bad"), accent: get("--accent"), card: get("--card") };
}

/* Four shades of a group's colour, so that neighbours look different. Not chosen: faint. */
function colorsOf(shown, shades) {
	const kind = $("color").value, of = groups[groupOfColor[kind]].of, colors = new Uint32Array(shown.count), known = new Map();
	for (let i = 0; i < shown.count; i++) {
		const life = shown.id[i], value = of(life), faint = chosen !== null && chosen.of(life) !== chosen.value;
		const key = value * 2 + (faint ? 1 : 0);
		let four = known.get(key);
		if (!four) {
			const c = colorOf(kind, value);
			four = [-4, 0, 3, 6].map((d) => packed(faint ? rgb(c[0], c[1] * .25, dark.matches ? 24 + d / 2 : 84 + d / 2) : rgb(c[0], c[1], c[2] + d)));
			known.set(key, four);
		}
		colors[i] = four[(Math.imul(life, 2654435761) >>> 0) >>> 30];
	}
	return colors;
}
