/* Where things are on the screen, and drawing them: rasters (trace_draw.js) below, lines above. */
"use strict";

/* ---- geometry ---- */

const xAll = () => view.byTime ? Math.max(device.times[device.length - 1], 1) : Math.max(device.length, 1);
const xOf = (event) => view.byTime ? device.times[Math.min(Math.max(event - device.from, 0), device.length - 1)] : event - device.from;

function eventAt(x) {
	const at = view.byTime ? NeapDraw.eventAtTime(device.times, x) : Math.floor(x);
	return device.from + Math.max(Math.min(at, device.length - 1), 0);
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

/* A level that goes up and down nearly everywhere is drawn without its steep parts: they would hide all else. */
function isDense(values) {
	let turns = 0;
	for (let c = 2; c < values.length; c++)
		if ((values[c] - values[c - 1]) * (values[c - 1] - values[c - 2]) < 0) turns++;
	return turns > values.length / 8;
}

function drawLevel(panel, context, levels, color) {
	const instants = panel.instants, scale = panel.width / instants.length;
	const values = Array.from(instants, (event, c) => levels.values[levels === device.requested ? event
		: levels.at(c ? Math.min(instants[c - 1] + 1, event) : event, event)]);
	const dense = isDense(values);
	context.strokeStyle = color;
	context.lineWidth = 1.5;
	context.beginPath();
	for (let c = 0; c < values.length; c++) {
		const y = panel.height - (values[c] - view.y0) / (view.y1 - view.y0) * panel.height, x = panel.left + c * scale;
		if (c === 0 || dense) context.moveTo(x, y); else context.lineTo(x, y);
		context.lineTo(x + scale, y);
	}
	context.stroke();
}

/* Between what blocks take and what is reserved. */
function drawCached(panel, context, color) {
	const instants = panel.instants, scale = panel.width / instants.length;
	const y = (bytes) => panel.height - (bytes - view.y0) / (view.y1 - view.y0) * panel.height;
	context.fillStyle = color;
	for (let c = 0; c < instants.length; c++) {
		const high = y(device.reserved.values[instants[c]]), low = y(device.rounded.values[instants[c]]);
		if (low > high) context.fillRect(panel.left + c * scale, high, scale, low - high);
	}
}

function vertical(panel, context, event, color, dashes, width) {
	const at = xOf(event);
	if (at < view.x0 || at > view.x1) return null;
	const x = Math.min(Math.round(pixelOf(panel, at)) + .5, panel.left + panel.width - 1.5);
	context.strokeStyle = color;
	context.lineWidth = width || 1;
	context.setLineDash(dashes);
	context.beginPath(); context.moveTo(x, 0); context.lineTo(x, panel.height); context.stroke();
	context.setLineDash([]);
	return x;
}

/* The names of instants, above the chart, as far as they do not cover one another: the first come first. */
function drawNames(panel, look, named) {
	const box = $("marks"), canvas = box.querySelector("canvas"), context = canvas.getContext("2d"), taken = [];
	canvas.width = Math.floor(box.clientWidth * panel.ratio);
	canvas.height = Math.floor(box.clientHeight * panel.ratio);
	context.setTransform(panel.ratio, 0, 0, panel.ratio, 0, 0);
	context.font = "11px system-ui, sans-serif";
	context.textBaseline = "middle";
	for (const [x, text, color] of named) {
		const width = context.measureText(text).width, left = Math.min(x - 1, panel.left + panel.width - width);
		if (left < 0 || taken.some(([from, to]) => left < to + 8 && left + width + 8 > from)) continue;
		taken.push([left, left + width]);
		context.fillStyle = color;
		context.fillText(text, left, box.clientHeight / 2);
	}
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
	const marks = [], named = [], nameOf = (i) => names.texts[device.marks.name[i]].slice(0, 40);
	for (let i = 0; i < device.marks.count && marks.length <= panel.width / 14; i++)
		if (inView(device.marks.event[i]) && device.marks.kind[i] !== 3 && device.marks.kind[i] !== 4 && !isOwnMark(nameOf(i))) marks.push(i);
	for (const event of new Set([...device.failures.event, device.facts.failure[1]])) {
		const x = event < device.from ? null : vertical(panel, context, event, look.bad, [], 2);
		if (x !== null) named.push([x, "out of memory", look.bad]);
	}
	if (marks.length <= panel.width / 14)
		for (const i of marks) named.push([vertical(panel, context, device.marks.event[i], look.accent, [2, 3]), nameOf(i), look.accent]);
	if (isStack) drawNames(panel, look, named);
}

/* neap's recordings have such marks for neap itself: what was held, and peaks when they were noticed. */
function isOwnMark(name) { return words.source === 3 && (name === "held" || name === "peak"); }

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
		if (device.reservedKnown) drawCached(panel, context, look.cached);
		drawLevel(panel, context, device.rounded, look.rounded);
		drawLevel(panel, context, device.requested, look.requested);
		if (device.reservedKnown) drawLevel(panel, context, device.reserved, look.reserved);
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
