"""Measures a page that is open in the browser: what sticks out, is cut off, lies on something else or is too faint.

Each function gives what is wrong, in words; an empty list is a page with nothing wrong.
"""

from typing import Any

SLACK = 1.0
"""Pixels that count as nothing: browsers round."""

OVERLAP = 2.0
"""Pixels, both ways, by which the boxes of two labels may overlap: a box is taller than its letters."""

CONTRAST = 4.5
"""Of text on what lies behind it: Web Content Accessibility Guidelines 2.2, criterion 1.4.3."""

_HELPERS = """
    const told = element => {
        const text = (element.textContent || '').trim().replace(/\\s+/g, ' ').slice(0, 60);
        return `${element.tagName.toLowerCase()} ${element.getAttribute('class') || ''} "${text}"`;
    };
    const box = element => element.getBoundingClientRect();
    // A label may be several, each at a place of its own.
    const labels = root => [...root.querySelectorAll('text')].flatMap(text => {
        const parts = [...text.querySelectorAll('tspan')];
        return parts.length ? parts : [text];
    }).filter(label => label.textContent.trim());
"""

_STICKING_OUT = """slack => {
    const found = [];
    if (document.documentElement.scrollWidth > innerWidth) found.push(`page ${document.documentElement.scrollWidth}`);
    const scrolls = element => element && (['auto', 'scroll'].includes(getComputedStyle(element).overflowX)
        || scrolls(element.parentElement));
    for (const element of document.body.querySelectorAll('*')) {
        if (element.closest('.skip') || !element.checkVisibility() || scrolls(element.parentElement)) continue;
        const {left, right, width} = box(element);
        if (width && (left < -slack || right > innerWidth + slack)) found.push(told(element));
    }
    return found;
}"""

_CUT_OFF = """slack => {
    const found = [];
    for (const element of document.body.querySelectorAll('*')) {
        // What only screen readers get is cut off on purpose.
        if (element.closest('svg, .spoken') || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        const {scrollWidth, scrollHeight, clientWidth, clientHeight} = element;
        const across = ['hidden', 'clip'].includes(style.overflowX) && scrollWidth > clientWidth + slack;
        const mayScroll = ['auto', 'scroll'].includes(style.overflowY) && style.maxHeight !== 'none';
        const down = style.overflowY !== 'visible' && !mayScroll && scrollHeight > clientHeight + slack;
        if (across || down) found.push(told(element));
    }
    for (const svg of document.querySelectorAll('svg')) {
        if (!svg.checkVisibility()) continue;
        const view = box(svg);
        for (const text of labels(svg)) {
            const {left, right, top, bottom} = box(text);
            const inside = left >= view.left - slack && right <= view.right + slack
                && top >= view.top - slack && bottom <= view.bottom + slack;
            if (!inside) found.push(told(text));
        }
    }
    return found;
}"""

_OVERLAPPING = """limit => {
    const found = [];
    for (const svg of document.querySelectorAll('svg')) {
        if (!svg.checkVisibility()) continue;
        const texts = labels(svg);
        const boxes = texts.map(box);
        const order = boxes.map((_, index) => index).sort((a, b) => boxes[a].left - boxes[b].left);
        for (const [place, one] of order.entries())
            for (const two of order.slice(place + 1)) {
                if (boxes[two].left >= boxes[one].right - limit) break;
                const down = Math.min(boxes[one].bottom, boxes[two].bottom) - Math.max(boxes[one].top, boxes[two].top);
                if (down > limit) found.push(`${told(texts[one])} and ${told(texts[two])}`);
            }
    }
    return found;
}"""

_FAINT = """least => {
    const parsed = colour => {
        const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return {rgb: [red, green, blue], opaque: alpha === 255};
    };
    const luminance = rgb => {
        const [red, green, blue] = rgb.map(each => each / 255).map(each =>
            each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const contrast = (one, two) => {
        const [dark, light] = [luminance(one), luminance(two)].sort((a, b) => a - b);
        return (light + 0.05) / (dark + 0.05);
    };
    const colours = new Map();
    const colour = text => colours.get(text) ?? colours.set(text, parsed(text)).get(text);
    // Of a pattern, what its lines or dots lie on.
    const ground = paint => {
        if (!paint.startsWith('url')) return paint;
        const under = document.getElementById(paint.match(/#([^")]+)/)[1])?.querySelector('rect');
        return under ? getComputedStyle(under).fill : 'none';
    };
    const behind = (x, y) => {
        for (const each of document.elementsFromPoint(x, y)) {
            if (each instanceof SVGTextContentElement) continue;
            const style = getComputedStyle(each);
            const paint = ground(each instanceof SVGGeometryElement ? style.fill : style.backgroundColor);
            if (paint === 'none') continue;
            const found = colour(paint);
            if (found.opaque && style.opacity === '1' && style.fillOpacity === '1') return found.rgb;
        }
        return colour(getComputedStyle(document.body).backgroundColor).rgb;
    };
    const found = [];
    for (const text of labels(document)) {
        if (!text.checkVisibility()) continue;
        text.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
        const {left, top, width, height} = box(text);
        const own = colour(getComputedStyle(text).fill).rgb;
        const ratios = [0.1, 0.5, 0.9].map(part => contrast(own, behind(left + part * width, top + height / 2)));
        const worst = Math.min(...ratios);
        if (worst < least) found.push(`${told(text)} ${worst.toFixed(2)}`);
    }
    return found;
}"""


def _asked(page: Any, script: str, limit: float) -> list[str]:
    found: list[str] = page.evaluate(f"limit => {{ {_HELPERS} return ({script})(limit); }}", limit)
    return found


def sticking_out(page: Any) -> list[str]:
    """The page, where it scrolls sideways, and what reaches beyond the window outside boxes that scroll."""
    return _asked(page, _STICKING_OUT, SLACK)


def cut_off(page: Any) -> list[str]:
    """What does not fit its box and cannot be scrolled to, and labels that reach beyond their drawing."""
    return _asked(page, _CUT_OFF, SLACK)


def overlapping(page: Any) -> list[str]:
    """Pairs of labels of a drawing that lie on each other."""
    return _asked(page, _OVERLAPPING, OVERLAP)


def faint(page: Any) -> list[str]:
    """Labels of drawings that stand out too little from what they lie on; the rest of the page is axe's part."""
    return _asked(page, _FAINT, CONTRAST)
