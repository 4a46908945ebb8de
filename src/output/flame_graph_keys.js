// Arrow keys select a frame, Enter zooms to it, Escape shows all again, / searches.
(function () {
    var selected = null;
    function box(frame) {
        return frame.querySelector("rect").getBoundingClientRect();
    }
    function isShown(frame) {
        return !frame.classList.contains("hide");
    }
    function select(frame) {
        if (!frame) return;
        if (selected) selected.classList.remove("selected");
        selected = frame;
        selected.classList.add("selected");
        details.nodeValue = nametype + " " + g_to_text(frame);
        frame.scrollIntoView({ block: "nearest" });
    }
    // The frame of `all` that fits, for which `measure` is least.
    function first(all, fits, measure) {
        var least = Infinity, found = null;
        all.forEach(function (frame) {
            var place = box(frame);
            if (fits(place) && measure(place) < least) {
                least = measure(place);
                found = frame;
            }
        });
        return found;
    }
    function next(key) {
        var all = Array.prototype.filter.call(frames.children, isShown);
        if (!selected || !isShown(selected)) {
            return first(all, function () { return true; }, function (place) { return place.top; });
        }
        var own = box(selected), row = own.height * 1.5;
        switch (key) {
        case "ArrowDown":
            return first(all, function (place) {
                return place.top > own.top && place.top - own.top < row
                    && place.left > own.left - 0.5 && place.right < own.right + 0.5;
            }, function (place) { return -place.width; });
        case "ArrowUp":
            return first(all, function (place) {
                return place.top < own.top && own.top - place.top < row
                    && place.left < own.left + 0.5 && place.right > own.right - 0.5;
            }, function (place) { return place.width; });
        case "ArrowLeft":
            return first(all, function (place) {
                return Math.abs(place.top - own.top) < 1 && place.left < own.left;
            }, function (place) { return -place.left; });
        default:
            return first(all, function (place) {
                return Math.abs(place.top - own.top) < 1 && place.left > own.left;
            }, function (place) { return place.left; });
        }
    }
    window.addEventListener("keydown", function (event) {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        switch (event.key) {
        case "ArrowDown":
        case "ArrowUp":
        case "ArrowLeft":
        case "ArrowRight":
            select(next(event.key));
            break;
        case "Enter":
            if (!selected) return;
            unzoom();
            zoom(selected);
            break;
        case "Escape":
            unzoom();
            if (searching) search_prompt();
            break;
        case "/":
            if (!searching) search_prompt();
            break;
        default:
            return;
        }
        event.preventDefault();
    });
})();
