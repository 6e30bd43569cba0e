/* The page itself: what is shown (view), where the cursor is, what is chosen; and drawing it again when they change. */
(function () {
	"use strict";
	const NEVER = NeapData.NEVER, $ = (id) => document.getElementById(id);
	const facts = {}, devices = {};
	let words, names, device, ready;
	let view = null, cursor = 0, hovered = -1, pinned = -1, chosen = null, fit = false, frame = 0;
	const panels = {}; /* stack, map: canvases, geometry, picks */

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
		return ", in step " + (low + device.stepsBefore + 1);
	}

	/* ---- what an allocation is ---- */

	const bytesOf = (life) => device.sizes[device.size[life]];

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
	const hues = { category: [[212, 62, 50], [30, 76, 52], [128, 38, 46], [276, 42, 58], [350, 55, 58], [44, 34, 42], [188, 58, 42], [210, 8, 62]] };

	function rgb(h, s, l) {
		s /= 100; l /= 100;
		const part = (n) => {
			const k = (n + h / 30) % 12;
			return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
		};
		return [part(0), part(8), part(4)];
	}

	function colorOf(kind, value) {
		if (kind === "category") return hues.category[value % 8];
		if (kind === "size") return [250 - (value - 9) * 11 + 360, 52, 54];
		if (kind === "stream") return [(212 + value * 137.5) % 360, 52, 52];
		let hash = Math.imul(value + 1, 2654435761) >>> 0;
		hash ^= hash >>> 15;
		return [hash % 360, 42 + (hash >>> 9) % 22, 46 + (hash >>> 17) % 16];
	}

	const cssColor = (kind, value) => { const c = colorOf(kind, value); return "hsl(" + c[0] + " " + c[1] + "% " + c[2] + "%)"; };
	const packed = (c) => (255 << 24 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0;

	function theme() {
		const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
		const three = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
		return { paper: packed(three(get("--card"))), hole: packed(three(get("--soft"))), holeLine: packed(dark.matches ? [72, 80, 88] : [198, 205, 211]),
			text: get("--text"), quiet: get("--quiet"), line: get("--line"), requested: get("--requested"), rounded: get("--rounded"),
			reserved: get("--reserved"), bad: get("--bad"), accent: get("--accent"), card: get("--card") };
	}

	/* Four shades of a group's colour, so that neighbours are told apart. Not chosen: faint. */
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

	/* ---- geometry ---- */

	const xAll = () => view.byTime ? Math.max(device.times[device.length - 1], 1) : device.length;
	const xOf = (event) => view.byTime ? device.times[Math.min(Math.max(event - device.from, 0), device.length - 1)] : event - device.from;

	function eventAt(x) {
		const at = view.byTime ? NeapDraw.eventAtTime(device.times, x) : Math.floor(x);
		return device.from + Math.min(Math.max(at, 0), device.length - 1);
	}

	function pixelOf(panel, x) { return panel.left + (x - view.x0) / (view.x1 - view.x0) * panel.width; }
	function xAt(panel, pixel) { return view.x0 + (pixel - panel.left) / panel.width * (view.x1 - view.x0); }

	function topLevel() {
		const high = (levels) => device.length ? levels.values[levels.at(0, device.length - 1)] : 0;
		let top = Math.max(high(device.requested), device.reservedKnown ? high(device.reserved) : 0, 1);
		if (device.facts.limit && device.facts.limit < top * 1.4) top = Math.max(top, device.facts.limit);
		return top * 1.04;
	}

	function showAll() {
		view = { byTime: view && view.byTime && device.times !== null, x0: 0, x1: 1, y0: 0, y1: device.top, m0: 0, m1: device.space || 1 };
		view.x1 = xAll();
	}

	/* Keeps the view within what there is, and not narrower than a few events. */
	function clamp() {
		const all = xAll(), least = view.byTime ? Math.min(all, Math.max(all / 1e7, 2)) : Math.min(all, 6);
		let span = Math.min(Math.max(view.x1 - view.x0, least), all);
		view.x0 = Math.min(Math.max(view.x0, 0), all - span);
		view.x1 = view.x0 + span;
		for (const [low, high, most] of [["y0", "y1", device.top], ["m0", "m1", device.space || 1]]) {
			span = Math.min(Math.max(view[high] - view[low], most / 1e6), most);
			view[low] = Math.min(Math.max(view[low], 0), most - span);
			view[high] = view[low] + span;
		}
	}

	/* The span [x0, x1] (or of bytes) `factor` times as wide, `at` staying where it is. */
	function zoom(low, high, at, factor) {
		const span = (view[high] - view[low]) * factor, part = (at - view[low]) / (view[high] - view[low]);
		view[low] = at - part * span;
		view[high] = view[low] + span;
		changed();
	}

	/* ---- drawing ---- */

	let refresh = 0, slow = 0;
	function changed() {
		clamp();
		if (!frame) frame = requestAnimationFrame(draw);
	}

	function redraw() { panels.stack.drawn = null; changed(); }

	function resize(panel) {
		const box = panel.box.getBoundingClientRect(), ratio = Math.min(devicePixelRatio || 1, 2);
		panel.left = innerWidth <= 860 ? 58 : 74;
		panel.width = Math.max(Math.floor(box.width - panel.left - 8), 20);
		panel.height = Math.max(Math.floor(box.height - 20), 20);
		panel.ratio = ratio;
		for (const canvas of [panel.raster, panel.lines]) {
			const isLines = canvas === panel.lines;
			const w = isLines ? Math.floor(box.width) : panel.width, h = isLines ? Math.floor(box.height) : panel.height;
			if (canvas.width !== Math.floor(w * ratio) || canvas.height !== Math.floor(h * ratio)) {
				canvas.width = Math.floor(w * ratio);
				canvas.height = Math.floor(h * ratio);
				panel.drawn = null;
			}
			canvas.style.width = w + "px";
			canvas.style.height = h + "px";
		}
		panel.raster.style.left = panel.left + "px";
		return panel;
	}

	/* While the view moves and a whole picture takes long, the last one is stretched into place. */
	function stretch(panel, low, high) {
		const old = panel.drawn, context = panel.raster.getContext("2d"), w = panel.raster.width, h = panel.raster.height;
		const left = (old.x0 - view.x0) / (view.x1 - view.x0) * w, width = (old.x1 - old.x0) / (view.x1 - view.x0) * w;
		const bottom = (old[low] - view[low]) / (view[high] - view[low]) * h, height = (old[high] - old[low]) / (view[high] - view[low]) * h;
		if (!panel.copy) {
			panel.copy = document.createElement("canvas");
			panel.copy.width = w;
			panel.copy.height = h;
			panel.copy.getContext("2d").putImageData(panel.image, 0, 0);
		}
		context.clearRect(0, 0, w, h);
		context.imageSmoothingEnabled = false;
		context.drawImage(panel.copy, left, h - bottom - height, width, height);
	}

	function drawRasters(colors, look) {
		const stack = panels.stack, map = panels.map;
		const paint = (panel, pick) => {
			const w = panel.raster.width, h = panel.raster.height;
			if (!panel.image || panel.image.width !== w || panel.image.height !== h) panel.image = new ImageData(w, h);
			NeapDraw.paint(panel.image, pick, w, h, colors, stack.shown, look.paper, look.hole, look.holeLine);
			panel.raster.getContext("2d").putImageData(panel.image, 0, 0);
			panel.pick = pick;
			panel.drawn = { ...view };
			panel.copy = null;
		};
		paint(stack, NeapDraw.stack(device, stack.shown, view, stack.raster.width, stack.raster.height));
		if (device.hasAddresses) {
			map.pieces = NeapDraw.chooseShown(device.pieces.begin, device.pieces.end, device.pieces.count, device.from, stack.instants);
			paint(map, NeapDraw.map(device, stack.shown, map.pieces, view, map.raster.width, map.raster.height));
		}
	}

	function fitHeight() {
		const low = eventAt(view.x0) - device.from, high = Math.max(eventAt(view.x1) - device.from, low);
		const top = (levels) => levels.values[levels.at(low, high)];
		view.y0 = 0;
		view.y1 = Math.min(Math.max(top(device.requested) * 1.06, device.top / 1e6), device.top);
	}

	function draw() {
		frame = 0;
		if (!device) return;
		const look = theme(), stack = resize(panels.stack), map = device.hasAddresses ? resize(panels.map) : null;
		if (fit) fitHeight();
		const same = stack.drawn && JSON.stringify(stack.drawn) === JSON.stringify(view) && (!map || map.drawn);
		if (!same && device.length > 0) {
			clearTimeout(refresh);
			if (slow > 40 && stack.drawn && (!map || map.drawn) && performance.now() - stack.asked < 120) {
				stretch(stack, "y0", "y1");
				if (map) stretch(map, "m0", "m1");
				refresh = setTimeout(() => { stack.asked = -1e9; changed(); }, 140);
			} else {
				const begin = performance.now();
				stack.instants = NeapDraw.chooseInstants(device, view, stack.raster.width);
				stack.shown = NeapDraw.chooseShown(device.begin, device.end, device.count, device.from, stack.instants);
				drawRasters(colorsOf(stack.shown), look);
				slow = performance.now() - begin;
			}
			stack.asked = performance.now();
		}
		drawLines(stack, look, true);
		if (map) drawLines(map, look, false);
		drawOverview(look);
		$("where").textContent = view.byTime
			? duration(Math.round(view.x0)) + " to " + duration(Math.round(view.x1))
			: "events " + count(eventAt(view.x0)) + " to " + count(eventAt(view.x1 - 1e-9));
	}

	function ticks(low, high, most, binary) {
		const base = binary ? 2 : 10, steps = binary ? [1] : [1, 2, 5], list = [];
		let step = Math.pow(base, Math.floor(Math.log((high - low) / most) / Math.log(base)));
		for (let i = 0; (high - low) / (step * steps[i % steps.length]) > most && i < 60;) { i++; if (i % steps.length === 0) step *= base; if ((high - low) / (step * steps[i % steps.length]) <= most) { step *= steps[i % steps.length]; break; } }
		if (!binary && low >= 0 && !view.byTime) step = Math.max(step, 1);
		for (let value = Math.ceil(low / step) * step; value <= high && list.length < 40; value += step) list.push(value);
		return list;
	}

	function drawAxes(panel, context, look, isStack) {
		const bottom = panel.height, right = panel.left + panel.width;
		context.font = "11px system-ui, sans-serif";
		context.lineWidth = 1;
		context.textAlign = "right";
		context.textBaseline = "middle";
		if (isStack) {
			for (const value of ticks(view.y0, view.y1, panel.height / 34, true)) {
				const y = bottom - (value - view.y0) / (view.y1 - view.y0) * bottom;
				context.strokeStyle = look.line;
				context.globalAlpha = .6;
				context.beginPath(); context.moveTo(panel.left, y); context.lineTo(right, y); context.stroke();
				context.globalAlpha = 1;
				context.fillStyle = look.quiet;
				if (y > 6) context.fillText(size(value), panel.left - 6, Math.min(y, bottom - 6));
			}
		} else {
			context.fillStyle = look.quiet;
			context.save();
			context.translate(panel.left - 12, bottom / 2);
			context.rotate(-Math.PI / 2);
			context.textAlign = "center";
			context.fillText(size(device.spaceBytes) + " of addresses", 0, 0);
			context.restore();
		}
		context.textAlign = "center";
		context.textBaseline = "top";
		context.fillStyle = look.quiet;
		for (const value of ticks(view.x0, view.x1, panel.width / 110, false)) {
			const x = pixelOf(panel, value);
			if (x < panel.left + 24 || x > right - 24) continue;
			context.fillText(view.byTime ? duration(Math.round(value)) : count(device.from + Math.round(value)), x, bottom + 5);
		}
		context.strokeStyle = look.line;
		context.strokeRect(panel.left + .5, .5, panel.width - 1, bottom - 1);
	}

	function drawLevel(panel, context, levels, color, dashes) {
		const w = panel.raster.width, instants = panel.instants, scale = panel.width / w;
		context.strokeStyle = color;
		context.setLineDash(dashes);
		context.lineWidth = 1.5;
		context.beginPath();
		for (let c = 0; c < w; c++) {
			const low = c ? Math.min(instants[c - 1] + 1, instants[c]) : instants[c];
			const value = levels.values[levels === device.requested ? instants[c] : levels.at(low, instants[c])];
			const y = panel.height - (value - view.y0) / (view.y1 - view.y0) * panel.height, x = panel.left + c * scale;
			if (c === 0) context.moveTo(x, y); else context.lineTo(x, y);
			context.lineTo(x + scale, y);
		}
		context.stroke();
		context.setLineDash([]);
	}

	function vertical(panel, context, event, color, dashes, width) {
		const x = Math.round(pixelOf(panel, xOf(event))) + .5;
		if (x < panel.left || x > panel.left + panel.width) return null;
		context.strokeStyle = color;
		context.lineWidth = width || 1;
		context.setLineDash(dashes);
		context.beginPath(); context.moveTo(x, 0); context.lineTo(x, panel.height); context.stroke();
		context.setLineDash([]);
		return x;
	}

	/* Steps and marks where there is room for them; failures always. */
	function drawMarks(panel, context, look, isStack) {
		const inView = (event) => { const x = xOf(event); return x >= view.x0 && x <= view.x1; };
		const thin = (events, least) => {
			const seen = Array.prototype.filter.call(events, inView);
			return seen.length <= panel.width / least ? seen : [];
		};
		for (const event of thin(device.steps, 12)) vertical(panel, context, event, look.quiet, [1, 5]);
		for (const event of thin(device.emptied, 12)) vertical(panel, context, event, look.warn || look.reserved, [3, 3]);
		let last = -1e9;
		const marks = [];
		for (let i = 0; i < device.marks.count && marks.length <= panel.width / 14; i++)
			if (inView(device.marks.event[i]) && device.marks.kind[i] !== 3 && device.marks.kind[i] !== 4) marks.push(i);
		context.font = "11px system-ui, sans-serif";
		context.textAlign = "left";
		context.textBaseline = "top";
		if (marks.length <= panel.width / 14)
			for (const i of marks) {
				const x = vertical(panel, context, device.marks.event[i], look.accent, [2, 3]);
				if (x === null || !isStack || x < last + 90) continue;
				last = x;
				label(context, look, names.texts[device.marks.name[i]].slice(0, 40), x + 3, 3, look.accent);
			}
		for (const event of device.failures.event) {
			const x = vertical(panel, context, event, look.bad, [], 2);
			if (x !== null && isStack) label(context, look, "out of memory", x + 4, 18, look.bad);
		}
	}

	function label(context, look, text, x, y, color) {
		const room = context.canvas.width / panels.stack.ratio, width = context.measureText(text).width;
		if (x + width > room) x = room - width - 2;
		context.fillStyle = look.card;
		context.globalAlpha = .85;
		context.fillRect(x - 2, y - 1, width + 4, 14);
		context.globalAlpha = 1;
		context.fillStyle = color;
		context.fillText(text, x, y);
	}

	function drawOutline(panel, context, life, color, look) {
		const index = panels.stack.shown ? panels.stack.shown.id.indexOf(life) : -1;
		if (index < 0 || !panel.pick) return;
		const runs = NeapDraw.outline(panel.pick, panels.stack.shown, index, panel.raster.height);
		if (!runs.length) return;
		const sx = panel.width / panel.raster.width, sy = panel.height / panel.raster.height, path = new Path2D();
		for (let i = 0; i < runs.length; i++) {
			const [c, , top] = runs[i];
			if (i === 0) path.moveTo(panel.left + c * sx, panel.height - top * sy); else path.lineTo(panel.left + c * sx, panel.height - top * sy);
			path.lineTo(panel.left + (c + 1) * sx, panel.height - top * sy);
		}
		for (let i = runs.length - 1; i >= 0; i--) {
			const [c, bottom] = runs[i];
			path.lineTo(panel.left + (c + 1) * sx, panel.height - bottom * sy);
			path.lineTo(panel.left + c * sx, panel.height - bottom * sy);
		}
		path.closePath();
		context.lineWidth = 3;
		context.strokeStyle = look.card;
		context.stroke(path);
		context.lineWidth = 1.5;
		context.strokeStyle = color;
		context.stroke(path);
	}

	function drawLines(panel, look, isStack) {
		const context = panel.lines.getContext("2d");
		context.setTransform(panel.ratio, 0, 0, panel.ratio, 0, 0);
		context.clearRect(0, 0, panel.lines.width, panel.lines.height);
		drawAxes(panel, context, look, isStack);
		if (!device.length) return;
		context.save();
		context.beginPath();
		context.rect(panel.left, 0, panel.width, panel.height);
		context.clip();
		if (isStack && panel.drawn && JSON.stringify(panel.drawn) === JSON.stringify(view)) {
			drawLevel(panel, context, device.rounded, look.rounded, []);
			drawLevel(panel, context, device.requested, look.requested, []);
			if (device.reservedKnown) drawLevel(panel, context, device.reserved, look.reserved, []);
		}
		if (isStack && device.facts.limit) {
			const y = panel.height - (device.facts.limit - view.y0) / (view.y1 - view.y0) * panel.height;
			context.strokeStyle = look.bad;
			context.lineWidth = 1.5;
			context.setLineDash([8, 4]);
			context.beginPath(); context.moveTo(panel.left, y); context.lineTo(panel.left + panel.width, y); context.stroke();
			context.setLineDash([]);
		}
		drawMarks(panel, context, look, isStack);
		vertical(panel, context, cursor, look.text, [6, 3], 1.5);
		if (pinned >= 0) drawOutline(panel, context, pinned, look.accent, look);
		if (hovered >= 0 && hovered !== pinned) drawOutline(panel, context, hovered, look.text, look);
		if (drag && drag.marking && drag.panel === panel) {
			context.fillStyle = look.accent;
			context.globalAlpha = .2;
			context.fillRect(Math.min(drag.from, drag.now), 0, Math.abs(drag.now - drag.from), panel.height);
			context.globalAlpha = 1;
		}
		context.restore();
	}

	function drawOverview(look) {
		const box = $("overview"), canvas = box.querySelector("canvas"), w = box.clientWidth, h = box.clientHeight;
		canvas.width = w;
		canvas.height = h;
		const context = canvas.getContext("2d"), all = device.length;
		const at = (x) => view.byTime ? (NeapDraw.eventAtTime(device.times, x)) / all * w : x / all * w;
		const left = at(view.x0), right = Math.max(at(view.x1), left + 2);
		context.fillStyle = look.card;
		context.globalAlpha = .65;
		context.fillRect(0, 0, left, h);
		context.fillRect(right, 0, w - right, h);
		context.globalAlpha = 1;
		context.strokeStyle = look.accent;
		context.strokeRect(left + .5, .5, right - left - 1, h - 1);
	}

	/* ---- panels of text ---- */

	function element(tag, text, className) {
		const made = document.createElement(tag);
		if (text !== undefined) made.textContent = text;
		if (className) made.className = className;
		return made;
	}

	function sums(group) {
		const found = new Map();
		let total = 0;
		for (let i = 0; i < device.count; i++) {
			if (device.begin[i] > cursor) break;
			if (device.end[i] <= cursor) continue;
			const key = group.of(i), bytes = bytesOf(i);
			let sum = found.get(key);
			if (!sum) found.set(key, sum = { key: key, bytes: 0, blocks: 0 });
			sum.bytes += bytes;
			sum.blocks++;
			total += bytes;
		}
		return { total: total, list: Array.from(found.values()).sort((a, b) => b.bytes - a.bytes) };
	}

	function choose(kind, value) {
		const same = chosen !== null && chosen.kind === kind && chosen.value === value;
		chosen = same || kind === null ? null : { kind: kind, value: value, of: groups[kind].of };
		$("unselect").hidden = chosen === null;
		fillHeld();
		fillLegend();
		drawSegments();
		redraw();
	}

	function fillHeld() {
		const kind = $("by").value, held = sums(groups[kind]), body = $("held").querySelector("tbody"), top = 12;
		body.textContent = "";
		for (const sum of held.list.slice(0, top)) {
			const row = element("tr"), cell = element("td"), button = element("button", groups[kind].text(sum.key));
			row.append(element("td", size(sum.bytes), "right"), element("td", (100 * sum.bytes / (held.total || 1)).toFixed(1), "right"), element("td", count(sum.blocks), "right"), cell);
			button.type = "button";
			button.title = "show where";
			const on = chosen !== null && chosen.kind === kind && chosen.value === sum.key;
			button.setAttribute("aria-pressed", String(on));
			if (on) row.className = "selected";
			button.addEventListener("click", () => choose(kind, sum.key));
			cell.append(button);
			body.append(row);
		}
		const rest = held.list.slice(top);
		if (rest.length) {
			const row = element("tr");
			const bytes = rest.reduce((sum, item) => sum + item.bytes, 0), blocks = rest.reduce((sum, item) => sum + item.blocks, 0);
			row.append(element("td", size(bytes), "right"), element("td", (100 * bytes / (held.total || 1)).toFixed(1), "right"), element("td", count(blocks), "right"), element("td", count(rest.length) + " more", "quiet"));
			body.append(row);
		}
		if (!held.list.length) { const row = element("tr"), cell = element("td", "nothing is live here", "quiet"); cell.colSpan = 4; row.append(cell); body.append(row); }
		$("cursor").textContent = instant(cursor) + ": " + size(held.total) + " requested";
	}

	function fillLegend() {
		const kind = $("color").value, group = groupOfColor[kind], held = sums(groups[group]), legend = $("legend");
		legend.textContent = "";
		for (const sum of held.list.slice(0, 12)) {
			const button = element("button"), dot = element("i"), on = chosen !== null && chosen.kind === group && chosen.value === sum.key;
			dot.style.background = cssColor(kind, sum.key);
			button.type = "button";
			button.append(dot, element("span", groups[group].text(sum.key)), element("b", size(sum.bytes)));
			button.setAttribute("aria-pressed", String(on));
			button.addEventListener("click", () => choose(group, sum.key));
			legend.append(button);
		}
		for (const [name, color] of [["requested", "--requested"], ["rounded (PyTorch's allocated)", "--rounded"]].concat(device.reservedKnown ? [["reserved", "--reserved"]] : [], device.facts.limit ? [["limit " + size(device.facts.limit), "--bad"]] : [])) {
			const item = element("button"), dot = element("i");
			dot.style.background = "var(" + color + ")";
			dot.style.height = "3px";
			item.type = "button";
			item.disabled = true;
			item.append(dot, element("span", name));
			legend.append(item);
		}
	}

	function lifeFacts(life) {
		const bytes = bytesOf(life), rounded = device.sizesRounded[device.size[life]], begin = device.begin[life], freed = device.freed[life], end = device.end[life];
		const list = [["size", size(bytes) + (bytes >= 1024 ? " (" + count(bytes) + " bytes)" : "") + (rounded !== bytes ? ", rounded " + size(rounded) : "")],
			["for", words.categories[device.category[life] >> 2] + (device.category[life] % 4 < 3 ? " (by " + words.hows[device.category[life] % 4] + ")" : "")],
			["by", holderText(holderOf(life))], ["stream", words.streams[device.stream[life]]],
			["allocated", instant(begin)], ["freed", freed === NEVER ? "not within the trace" : instant(freed)]];
		if (end !== freed) list.push(["reusable", end === NEVER ? "not within the trace: a stream still uses it" : instant(end)]);
		const to = end === NEVER ? device.events : end, from = Math.max(begin, 0), t0 = timeOf(from), t1 = timeOf(Math.min(to, device.to - 1));
		list.push(["lived", (begin < 0 || end === NEVER ? "at least " : "") + count(to - from) + " events" + (t0 !== null && t1 !== null ? ", " + duration(t1 - t0) : "")]);
		if (device.hasAddresses) list.push(["address", hex(device.addresses[device.address[life]])]);
		return list;
	}

	function fillDetails() {
		const panel = $("details");
		panel.textContent = "";
		panel.append(element("h3", "Allocation"));
		if (pinned < 0) { panel.append(element("p", "Point at one; a click keeps it here.", "quiet")); return; }
		const list = element("dl");
		for (const [name, text] of lifeFacts(pinned)) list.append(element("dt", name), element("dd", text));
		panel.append(list);
		for (const [title, stack] of [["allocated here", device.stack[pinned]], ["freed here", device.freedStack[pinned]]]) {
			const lines = NeapData.stackLines(names, stack), made = element("ol");
			if (!lines.length) continue;
			for (const line of lines) made.append(element("li", line.name + (line.place ? "  " + line.place : "")));
			panel.append(element("h4", title), made);
		}
		if (!device.stack[pinned]) panel.append(element("p", "The file has no stack for it.", "quiet"));
	}

	function pin(life) { pinned = life; fillDetails(); drawSegments(); changed(); }

	function moveCursor(event) {
		cursor = Math.min(Math.max(event, device.from), Math.max(device.to - 1, device.from));
		fillHeld();
		fillLegend();
		takeSegments();
		changed();
	}

	/* ---- segments at the cursor ---- */

	let segments = [], segmentHits = [];
	const ROW = 26;

	function takeSegments() {
		segments = [];
		if (!device.hasAddresses) return;
		const pieces = device.pieces;
		const live = [];
		for (let p = 0; p < pieces.count; p++)
			if (pieces.begin[p] <= cursor && pieces.end[p] > cursor) live.push(p);
		live.sort((a, b) => pieces.address[a] - pieces.address[b]);
		for (const p of live) {
			const last = segments[segments.length - 1], low = pieces.address[p], high = low + pieces.size[p];
			if (last && last.expandable && pieces.expandable[p] && last.high === low && last.stream === pieces.stream[p]) last.high = high;
			else segments.push({ low: low, high: high, expandable: pieces.expandable[p] === 1, stream: pieces.stream[p], begin: pieces.begin[p], blocks: [] });
		}
		const blocks = [];
		for (let i = 0; i < device.count && device.begin[i] <= cursor; i++) if (device.end[i] > cursor) blocks.push(i);
		blocks.sort((a, b) => device.addresses[device.address[a]] - device.addresses[device.address[b]]);
		let at = 0;
		for (const life of blocks) {
			const address = device.addresses[device.address[life]];
			while (at < segments.length && segments[at].high <= address) at++;
			if (at < segments.length && segments[at].low <= address) segments[at].blocks.push(life);
		}
		let reserved = 0, free = 0, held = 0;
		for (const segment of segments) {
			measure(segment);
			reserved += segment.high - segment.low;
			free += segment.free;
			held += segment.blocks.length ? segment.free : 0;
		}
		$("cursor2").textContent = instant(cursor);
		$("segmentsum").textContent = count(segments.length) + " segments, " + size(reserved) + " reserved, " + size(free) + " free in them; " + size(held) + " of that beside a live block" + (device.facts.leftOut ? "; " + count(device.facts.leftOut) + " segments were too many at once and are left out" : "");
		sortSegments();
	}

	function measure(segment) {
		let end = segment.low;
		segment.free = 0;
		segment.largest = 0;
		for (const life of segment.blocks) {
			const address = device.addresses[device.address[life]], hole = Math.max(address - end, 0);
			segment.free += hole;
			segment.largest = Math.max(segment.largest, hole);
			end = Math.max(end, address + device.sizesRounded[device.size[life]]);
		}
		const hole = Math.max(segment.high - end, 0);
		segment.free += hole;
		segment.largest = Math.max(segment.largest, hole);
	}

	function sortSegments() {
		const held = (segment) => segment.blocks.length ? segment.free : -1;
		const orders = { held: (a, b) => held(b) - held(a) || b.high - b.low - (a.high - a.low), size: (a, b) => b.high - b.low - (a.high - a.low), address: (a, b) => a.low - b.low };
		segments.sort(orders[$("order").value]);
		const box = $("segments"), canvas = box.querySelector("canvas");
		const all = segments.length * ROW + 4;
		box.style.height = Math.min(all, 420) + "px";
		box.querySelector("div").style.height = Math.max(all - Math.min(all, 420), 0) + "px";
		canvas.style.height = Math.min(all, 420) + "px";
		box.scrollTop = 0;
		drawSegments();
	}

	function drawSegments() {
		if (!device || !device.hasAddresses) return;
		const box = $("segments"), canvas = box.querySelector("canvas"), ratio = Math.min(devicePixelRatio || 1, 2), look = theme();
		const w = box.clientWidth, h = Math.min(segments.length * ROW + 4, 420), context = canvas.getContext("2d"), kind = $("color").value;
		canvas.width = w * ratio;
		canvas.height = h * ratio;
		canvas.style.width = w + "px";
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.font = "11px system-ui, sans-serif";
		context.textBaseline = "middle";
		const left = w < 560 ? 96 : 190, width = w - left - 6, first = Math.floor(box.scrollTop / ROW);
		segmentHits = [];
		for (let s = first; s < segments.length && (s - first) * ROW < h + ROW; s++) {
			const segment = segments[s], y = s * ROW - box.scrollTop + 3, scale = width / (segment.high - segment.low);
			context.fillStyle = look.quiet;
			context.textAlign = "right";
			context.fillText(size(segment.high - segment.low) + (w < 560 ? "" : ", " + Math.round(100 * (1 - segment.free / (segment.high - segment.low))) + " % live" + (segment.stream ? ", stream " + words.streams[segment.stream] : "")), left - 8, y + (ROW - 6) / 2, left - 10);
			context.fillStyle = hatch(context, look);
			context.fillRect(left, y, width, ROW - 6);
			for (const life of segment.blocks) {
				const x = left + (device.addresses[device.address[life]] - segment.low) * scale, span = Math.max(device.sizesRounded[device.size[life]] * scale, 1.5);
				const value = groups[groupOfColor[kind]].of(life), faint = chosen !== null && chosen.of(life) !== chosen.value;
				context.globalAlpha = faint ? .25 : 1;
				context.fillStyle = cssColor(kind, value);
				context.fillRect(x, y, Math.min(span, left + width - x), ROW - 6);
				if (span > 4) { context.fillStyle = look.card; context.globalAlpha = .5; context.fillRect(x + span - .75, y, .75, ROW - 6); }
				context.globalAlpha = 1;
				if (life === pinned) { context.strokeStyle = look.text; context.lineWidth = 2; context.strokeRect(x, y, span, ROW - 6); }
			}
			context.strokeStyle = look.line;
			context.lineWidth = 1;
			context.strokeRect(left + .5, y + .5, width - 1, ROW - 7);
			segmentHits.push({ segment: segment, y: y, left: left, scale: scale });
		}
	}

	function hatch(context, look) {
		const tile = document.createElement("canvas"), to = (color) => "rgb(" + (color & 255) + "," + (color >> 8 & 255) + "," + (color >> 16 & 255) + ")";
		tile.width = tile.height = 7;
		const paint = tile.getContext("2d");
		paint.fillStyle = to(look.hole);
		paint.fillRect(0, 0, 7, 7);
		paint.fillStyle = to(look.holeLine);
		for (let i = 0; i < 7; i++) paint.fillRect(i, (7 - i) % 7, 1, 1);
		return context.createPattern(tile, "repeat");
	}

	/* What keeps a segment from being given back: its live blocks by who asked for them. */
	function segmentLines(segment) {
		const lines = [["b", size(segment.high - segment.low) + (segment.expandable ? " of an expandable segment" : " segment")], ["div", "at " + hex(segment.low) + ", stream " + words.streams[segment.stream] + ", reserved at " + instant(segment.begin)],
			["div", size(segment.free) + " free, the largest hole " + size(segment.largest)]];
		const pins = new Map();
		for (const life of segment.blocks) {
			const key = holderOf(life), pinsOf = pins.get(key) || { bytes: 0, blocks: 0 };
			pinsOf.bytes += bytesOf(life);
			pinsOf.blocks++;
			pins.set(key, pinsOf);
		}
		const list = Array.from(pins).sort((a, b) => b[1].bytes - a[1].bytes);
		lines.push(["div", list.length ? "held by " + count(segment.blocks.length) + (segment.blocks.length === 1 ? " block:" : " blocks:") : "nothing live: emptying the cache gives it back"]);
		for (const [key, sum] of list.slice(0, 5)) lines.push(["div", size(sum.bytes) + " in " + count(sum.blocks) + ": " + holderText(key)]);
		if (list.length > 5) lines.push(["div", count(list.length - 5) + " more"]);
		return lines;
	}

	function lifeLines(life) {
		const lines = lifeFacts(life).map(([name, text], i) => i ? ["div", name + ": " + text] : ["b", text]);
		const stack = NeapData.stackLines(names, device.stack[life]);
		if (stack.length > 1) lines.push(["div", count(stack.length) + " frames; a click shows them"]);
		return lines;
	}

	function showTip(lines, x, y) {
		const tip = $("tip");
		tip.hidden = !lines;
		if (!lines) return;
		tip.textContent = "";
		for (const [tag, text] of lines) tip.append(element(tag, text));
		const box = tip.getBoundingClientRect();
		tip.style.left = Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16) + "px";
		tip.style.top = Math.max(4, Math.min(y + 16, innerHeight - box.height - 4)) + "px";
	}

	/* ---- mouse and keys ---- */

	let drag = null;

	function hit(panel, event) {
		const box = panel.box.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
		const inside = x >= panel.left && x < panel.left + panel.width && y >= 0 && y < panel.height;
		const found = { x: x, y: y, inside: inside, item: 0 };
		if (inside && panel.pick && panel.drawn) {
			const c = Math.floor((x - panel.left) * panel.raster.width / panel.width);
			const row = panel.raster.height - 1 - Math.floor(y * panel.raster.height / panel.height);
			found.column = c;
			found.item = panel.pick[c * panel.raster.height + row];
		}
		return found;
	}

	function holeLines(panel, found) {
		const pieces = device.pieces, p = panels.map.pieces.id[-1 - found.item];
		const at = device.from + panels.stack.instants[found.column];
		const segment = { low: pieces.address[p], high: pieces.address[p] + pieces.size[p], expandable: pieces.expandable[p] === 1, stream: pieces.stream[p], begin: pieces.begin[p], blocks: [] };
		for (let i = 0; i < device.count && device.begin[i] <= at; i++) {
			const address = device.addresses[device.address[i]];
			if (device.end[i] > at && address >= segment.low && address < segment.high) segment.blocks.push(i);
		}
		segment.blocks.sort((a, b) => device.addresses[device.address[a]] - device.addresses[device.address[b]]);
		measure(segment);
		return segmentLines(segment);
	}

	function onMove(panel, event) {
		const low = panel === panels.stack ? "y0" : "m0", high = panel === panels.stack ? "y1" : "m1";
		if (drag && drag.panel === panel) {
			const box = panel.box.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
			drag.moved = drag.moved || Math.abs(x - drag.from) + Math.abs(y - drag.fromY) > 4;
			if (drag.marking) { drag.now = Math.min(Math.max(x, panel.left), panel.left + panel.width); changed(); return; }
			if (!drag.moved) return;
			panel.box.classList.add("dragging");
			const dx = (x - drag.from) / panel.width * (view.x1 - view.x0), dy = (y - drag.fromY) / panel.height * (view[high] - view[low]);
			view.x1 = drag.view.x1 - dx; view.x0 = drag.view.x0 - dx;
			view[low] = drag.view[low] + dy; view[high] = drag.view[high] + dy;
			showTip(null);
			changed();
			return;
		}
		const found = hit(panel, event), life = found.item > 0 ? panels.stack.shown.id[found.item - 1] : -1;
		if (life !== hovered) { hovered = life; changed(); }
		showTip(life >= 0 ? lifeLines(life) : found.item < 0 ? holeLines(panel, found) : null, event.clientX, event.clientY);
	}

	function onUp(panel, event) {
		const was = drag;
		drag = null;
		panel.box.classList.remove("dragging");
		if (!was || was.panel !== panel) return;
		if (was.marking && Math.abs(was.now - was.from) > 4) {
			const a = xAt(panel, Math.min(was.from, was.now)), b = xAt(panel, Math.max(was.from, was.now));
			view.x0 = a; view.x1 = b;
			changed();
		} else if (!was.moved) {
			const found = hit(panel, event);
			if (!found.inside) return;
			moveCursor(device.from + (panels.stack.instants ? panels.stack.instants[found.column] : 0));
			if (found.item > 0) pin(panels.stack.shown.id[found.item - 1]);
		}
		changed();
	}

	function listen(panel, low, high) {
		const box = panel.box;
		box.addEventListener("pointermove", (event) => onMove(panel, event));
		box.addEventListener("pointerleave", () => { hovered = -1; showTip(null); changed(); });
		box.addEventListener("pointerdown", (event) => {
			if (event.button !== 0 || !ready) return;
			const found = hit(panel, event);
			if (!found.inside) return;
			box.setPointerCapture(event.pointerId);
			drag = { panel: panel, from: found.x, fromY: found.y, now: found.x, view: { ...view }, marking: event.shiftKey, moved: false };
		});
		box.addEventListener("pointerup", (event) => onUp(panel, event));
		box.addEventListener("pointercancel", () => { drag = null; box.classList.remove("dragging"); changed(); });
		box.addEventListener("dblclick", (event) => {
			const found = hit(panel, event), life = found.item > 0 ? panels.stack.shown.id[found.item - 1] : -1;
			if (life >= 0) zoomTo(life);
		});
		box.addEventListener("wheel", (event) => {
			if (!ready) return;
			event.preventDefault();
			const found = hit(panel, event), turned = event.deltaY || event.deltaX, factor = Math.exp(Math.min(Math.max(turned, -240), 240) * (event.deltaMode ? .05 : .0022));
			if (event.shiftKey) zoom(low, high, view[low] + (1 - found.y / panel.height) * (view[high] - view[low]), factor);
			else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { const by = event.deltaX / panel.width * (view.x1 - view.x0); view.x0 += by; view.x1 += by; changed(); }
			else zoom("x0", "x1", xAt(panel, Math.min(Math.max(found.x, panel.left), panel.left + panel.width)), factor);
		}, { passive: false });
		box.addEventListener("keydown", onKey);
	}

	function zoomTo(life) {
		const begin = Math.max(device.begin[life], device.from), end = Math.min(device.end[life], device.to - 1);
		const a = xOf(begin), b = Math.max(xOf(end), a + 1), margin = (b - a) * .15 + 1;
		view.x0 = a - margin;
		view.x1 = b + margin;
		changed();
	}

	/* The next live allocation above or below the pinned one at the cursor. */
	function neighbour(up) {
		let below = -1, found = -1;
		for (let i = 0; i < device.count && device.begin[i] <= cursor; i++) {
			if (device.end[i] <= cursor) continue;
			if (i < pinned) below = i;
			else if (i > pinned) { found = i; break; }
		}
		if (pinned >= 0 && !liveAt(pinned, cursor)) return found >= 0 ? found : below;
		return up ? (found >= 0 ? found : pinned) : (below >= 0 ? below : pinned);
	}

	function keepCursorSeen() {
		const x = xOf(cursor), span = view.x1 - view.x0;
		if (x < view.x0 || x > view.x1) { view.x0 = x - span / 2; view.x1 = x + span / 2; }
	}

	function onKey(event) {
		if (!ready || event.ctrlKey || event.altKey || event.metaKey) return;
		const span = view.x1 - view.x0, middle = xOf(cursor) >= view.x0 && xOf(cursor) <= view.x1 ? xOf(cursor) : view.x0 + span / 2;
		const move = (by) => { view.x0 += by; view.x1 += by; changed(); };
		const keys = {
			ArrowLeft: () => move(event.shiftKey ? -span : -span / 8), ArrowRight: () => move(event.shiftKey ? span : span / 8),
			"+": () => zoom("x0", "x1", middle, .6), "=": () => zoom("x0", "x1", middle, .6), "-": () => zoom("x0", "x1", middle, 1 / .6),
			ArrowUp: () => pin(neighbour(true)), ArrowDown: () => pin(neighbour(false)),
			",": () => { moveCursor(cursor - 1); keepCursorSeen(); }, ".": () => { moveCursor(cursor + 1); keepCursorSeen(); },
			Home: () => move(-view.x0), End: () => move(xAll() - view.x1), f: () => setFit(!fit),
			"0": reset, Escape: reset
		};
		if (!Object.hasOwn(keys, event.key)) return;
		event.preventDefault();
		keys[event.key]();
	}

	function reset() { setFit(false); showAll(); choose(null); changed(); }

	function setFit(on) {
		fit = on;
		$("fit").setAttribute("aria-pressed", String(on));
		if (!on) { view.y0 = 0; view.y1 = device.top; }
		changed();
	}

	function listenOverview() {
		const box = $("overview"), go = (event) => {
			const part = (event.clientX - box.getBoundingClientRect().left) / box.clientWidth, span = view.x1 - view.x0;
			const at = view.byTime ? device.times[Math.min(Math.max(Math.floor(part * device.length), 0), device.length - 1)] : part * device.length;
			view.x0 = at - span / 2;
			view.x1 = at + span / 2;
			changed();
		};
		box.addEventListener("pointerdown", (event) => { box.setPointerCapture(event.pointerId); go(event); });
		box.addEventListener("pointermove", (event) => { if (event.buttons & 1) go(event); });
	}

	function listenSegments() {
		const box = $("segments"), find = (event) => {
			const area = box.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
			const row = segmentHits.find((item) => y >= item.y && y < item.y + ROW);
			if (!row || x < row.left - 190) return null;
			const address = row.segment.low + (x - row.left) / row.scale, near = 2 / row.scale;
			let best = -1;
			for (const life of row.segment.blocks) {
				const low = device.addresses[device.address[life]], high = low + device.sizesRounded[device.size[life]];
				if (address >= low && address < high) { best = life; break; }
				if (address >= low - near && address < high + near) best = life;
			}
			return { segment: row.segment, life: x >= row.left ? best : -1 };
		};
		box.addEventListener("pointermove", (event) => {
			const found = find(event);
			showTip(found && (found.life >= 0 ? lifeLines(found.life) : segmentLines(found.segment)), event.clientX, event.clientY);
			const life = found ? found.life : -1;
			if (life !== hovered) { hovered = life; changed(); }
		});
		box.addEventListener("pointerleave", () => { hovered = -1; showTip(null); changed(); });
		box.addEventListener("click", (event) => { const found = find(event); if (found && found.life >= 0) pin(found.life); });
		box.addEventListener("scroll", drawSegments);
	}

	function listenControls() {
		$("axis").addEventListener("change", () => {
			const a = eventAt(view.x0), b = eventAt(view.x1 - 1e-9);
			view.byTime = $("axis").value === "time";
			view.x0 = xOf(a);
			view.x1 = b + 1 >= device.to ? xAll() : xOf(b + 1);
			changed();
		});
		$("color").addEventListener("change", () => { fillLegend(); drawSegments(); redraw(); });
		$("closer").addEventListener("click", () => zoom("x0", "x1", (view.x0 + view.x1) / 2, .6));
		$("wider").addEventListener("click", () => zoom("x0", "x1", (view.x0 + view.x1) / 2, 1 / .6));
		$("fit").addEventListener("click", () => setFit(!fit));
		$("reset").addEventListener("click", reset);
		$("by").addEventListener("change", fillHeld);
		$("order").addEventListener("change", sortSegments);
		$("unselect").addEventListener("click", () => choose(null));
		$("topeak").addEventListener("click", () => { toPeak(); keepCursorSeen(); changed(); });
		$("device").addEventListener("change", () => show(Number($("device").value)));
		addEventListener("resize", () => { redraw(); drawSegments(); });
		dark.addEventListener("change", () => { redraw(); drawSegments(); });
	}

	function toPeak() { moveCursor(Math.max(device.facts.requested[1], device.from)); }

	/* ---- beginning ---- */

	const parse = (id) => JSON.parse($(id).textContent);

	/* The picture is made from the allocations, the figures by the command: they have to agree. */
	function check() {
		for (const [name, levels] of [["requested", device.requested], ["rounded", device.rounded], ["reserved", device.reserved]]) {
			const [bytes, event] = device.facts[name];
			if (event < device.from || event >= device.to || (name === "reserved" && !device.reservedKnown)) continue;
			if (levels.values[event - device.from] !== bytes) return name + " at event " + event + " is " + levels.values[event - device.from] + " bytes in the picture, " + bytes + " in the figures";
		}
		return "";
	}

	async function show(number) {
		const section = document.querySelector('.device[data-device="' + number + '"]'), place = section.querySelector(".place"), state = place.querySelector(".state");
		ready = false;
		for (const other of document.querySelectorAll(".device")) other.classList.toggle("chosen", other === section);
		$("chart").hidden = true;
		const old = $("overview").querySelector(".coarse");
		if (old && device) document.querySelector('.device[data-device="' + device.facts.device + '"] .place').append(old);
		try {
			if (!devices[number]) {
				state.textContent = "Reading " + count(facts[number].to - facts[number].from) + " events ...";
				await NeapData.pause();
				names = names || NeapData.readNames(await NeapData.unpack("names"));
				devices[number] = await NeapData.readDevice(facts[number], words.source !== 1);
			}
		} catch (error) {
			state.textContent = "The page's data cannot be read (" + error.message + "): is the file whole?";
			state.classList.add("bad");
			throw error;
		}
		device = devices[number];
		device.top = topLevel();
		device.stepsBefore = facts[number].stepsBefore;
		state.textContent = check();
		state.classList.toggle("bad", state.textContent !== "");
		const coarse = place.querySelector(".coarse");
		if (coarse) $("overview").prepend(coarse);
		$("overview").hidden = !coarse;
		place.append($("chart"));
		$("chart").hidden = false;
		$("mapcard").hidden = $("segmentscard").hidden = !device.hasAddresses;
		$("nomap").hidden = device.hasAddresses;
		$("axis").disabled = device.times === null;
		if (device.times === null) $("axis").value = "event";
		hovered = pinned = -1;
		chosen = null;
		view = null;
		showAll();
		view.byTime = $("axis").value === "time";
		view.x1 = xAll();
		panels.stack.drawn = panels.map.drawn = null;
		ready = true;
		fillDetails();
		toPeak();
		draw();
	}

	async function begin() {
		document.documentElement.classList.add("scripted");
		words = parse("words");
		for (const id of ["stack", "map"])
			panels[id] = { box: $(id), raster: $(id).querySelector(".raster"), lines: $(id).querySelector(".lines"), drawn: null, asked: -1e9 };
		const sections = Array.from(document.querySelectorAll(".device"));
		for (const section of sections) {
			const number = Number(section.dataset.device), option = element("option", String(number));
			facts[number] = parse("facts-" + number);
			option.value = String(number);
			$("device").append(option);
		}
		$("choose").hidden = sections.length < 2;
		listen(panels.stack, "y0", "y1");
		listen(panels.map, "m0", "m1");
		listenOverview();
		listenSegments();
		listenControls();
		await show(Number(sections[0].dataset.device));
	}

	/* For scripts that drive the page: when it is ready, and where on the screen an instant and a level are. */
	window.neapPage = {
		begun: new Promise((done, fail) => {
			const go = () => begin().then(done, fail);
			if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", go); else go();
		}),
		place(event, bytes) {
			const panel = panels.stack, box = panel.box.getBoundingClientRect();
			return [box.left + pixelOf(panel, xOf(event) + (view.byTime ? 0 : .5)), box.top + panel.height - (bytes - view.y0) / (view.y1 - view.y0) * panel.height];
		},
		state() { return { view: { ...view }, ready: ready, cursor: cursor, pinned: pinned, slow: slow, lives: device ? device.count : 0 }; }
	};
})();
