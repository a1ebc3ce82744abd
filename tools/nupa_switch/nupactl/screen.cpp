// SPDX-License-Identifier: BSD-3-Clause
// `nupactl top`: on a terminal by ncurses, elsewhere line by line.
#include <fmt/core.h>
#define NCURSES_NOMACROS  // functions, which can be called by their whole names
#include <ncurses.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

#include "top.hpp"

namespace nupa::ctl {
namespace {

volatile std::sig_atomic_t ended = 0;

Look look(const std::string& control) {
    Look now;
    now.ports = request(control, {{"cmd", "ports"}});
    now.stats = request(control, {{"cmd", "stats"}});
    now.qps = request(control, {{"cmd", "qps"}});
    now.at_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    return now;
}

// The terminal is as it was again when this goes, whatever happens.
class Terminal {
public:
    Terminal() : out_(::newterm(nullptr, stdout, stdin)) {
        if (out_ == nullptr)
            throw RequestError("this terminal is not known: set TERM, or use --once");
        ::cbreak();
        ::noecho();
        ::curs_set(0);
        ::keypad(stdscr, TRUE);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal() {
        ::endwin();
        ::delscreen(out_);
    }

    static void show(const std::string& title, const std::vector<std::string>& lines) {
        ::erase();
        ::attron(A_REVERSE);
        ::mvaddnstr(0, 0, title.c_str(), COLS);
        ::attroff(A_REVERSE);
        for (int i = 0; i < static_cast<int>(lines.size()) && i + 2 < LINES; i++)
            ::mvaddnstr(i + 2, 0, lines[static_cast<size_t>(i)].c_str(), COLS);
        ::refresh();
    }
    // A key, or nothing within @seconds.
    static std::optional<int> key(double seconds) {
        ::timeout(static_cast<int>(seconds * 1000));
        const int key = ::getch();
        return key == ERR ? std::nullopt : std::optional(key);
    }

private:
    SCREEN* out_;
};

// False: the user has seen enough.
bool obey(int key, TopOrder& order) {
    for (size_t i = 0; i < std::size(kTopOrders); i++)
        if (key == kTopOrders[i][0])
            order = static_cast<TopOrder>(i);
    return key != 'q';
}

void run_on_terminal(const TopOptions& options) {
    TopOrder order = options.order;
    Look before = look(options.control);
    struct sigaction action {};
    action.sa_handler = [](int) { ended = 1; };
    for (const int signal : {SIGINT, SIGTERM})
        ::sigaction(signal, &action, nullptr);
    const Terminal terminal;
    Terminal::show("nupactl top: the first rates come in a moment", {});
    double left = options.interval_s;
    Look now = before;
    while (ended == 0) {
        if (const auto key = Terminal::key(left)) {
            if (!obey(*key, order))
                return;
        } else {
            before = std::move(now);
            now = look(options.control);
        }
        if (before.at_s == now.at_s)
            continue;
        Terminal::show(fmt::format("nupactl top, each {:g} s, by {}   p c s d n: order, q: end ",
                                   options.interval_s, kTopOrders[static_cast<size_t>(order)]),
                       render_top(before, now, order));
    }
}

bool print(const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
        std::puts(line.c_str());
    return std::fflush(stdout) == 0;
}

void run_by_lines(const TopOptions& options) {
    Look before = look(options.control);
    for (bool first = true;; first = false) {
        std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
        Look now = look(options.control);
        if (!first)
            std::puts("");
        if (!print(render_top(before, now, options.order)) || options.once)
            return;
        before = std::move(now);
    }
}

}  // namespace

void run_top(const TopOptions& options) {
    if (options.once || !::isatty(STDIN_FILENO) || !::isatty(STDOUT_FILENO))
        run_by_lines(options);
    else
        run_on_terminal(options);
}

}  // namespace nupa::ctl
