// C++ functions whose names a test compares: templates, operators, lambdas, virtual functions,
// constructors, destructors, and functions with internal linkage.
//
//   chains-cpp [SECONDS]      default: 1 s
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace shapes {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};

struct Square final : Shape {
    explicit Square(double side) : name("square"), side(side) {}
    double area() const override { return side * side; }
    std::string name;
    double side;
};

template <typename Number, int Corners>
struct Polygon : Shape {
    explicit Polygon(std::vector<Number> sides) : sides(std::move(sides)) {}
    double area() const override {
        return std::accumulate(sides.begin(), sides.end(), 0.0, [](double sum, Number side) { return sum * 0.5 + side / Corners; });
    }
    std::vector<Number> sides;
};

}  // namespace shapes

namespace {

struct Money {
    long cents;
    bool operator<(const Money &other) const { return cents < other.cents; }
    Money operator+(const Money &other) const { return {cents + other.cents}; }
    explicit operator bool() const { return cents != 0; }
    long operator()(long rate) const { return cents * rate % 1009; }
};

template <typename... Parts>
std::string joined(const Parts &...parts) {
    std::ostringstream out;
    ((out << parts << ','), ...);
    return out.str();
}

__attribute__((noinline)) double areas(long round) {
    std::vector<std::unique_ptr<shapes::Shape>> all;
    for (int i = 0; i < 40; i++) {
        all.push_back(std::make_unique<shapes::Square>(i + round % 7));
        all.push_back(std::make_unique<shapes::Polygon<float, 5>>(std::vector<float>(20, i)));
        all.push_back(std::make_unique<shapes::Polygon<long, -3>>(std::vector<long>(20, i)));
    }
    double sum = 0;
    for (const auto &shape : all) sum += shape->area();
    return sum;
}

__attribute__((noinline)) long sorted(long round) {
    std::vector<Money> prices(300);
    for (std::size_t i = 0; i < prices.size(); i++) prices[i].cents = (i * 7919 + round) % 1000;
    std::sort(prices.begin(), prices.end());
    std::stable_sort(prices.begin(), prices.end(), [](const Money &a, const Money &b) { return a.cents % 10 < b.cents % 10; });
    std::function<long(long)> price = prices.back();
    auto sum = std::accumulate(prices.begin(), prices.end(), Money{0});
    return sum ? price(round) + sum.cents : 0;
}

__attribute__((noinline)) std::size_t counted(long round) {
    std::map<std::string, long> by_name;
    std::unordered_map<long, std::pair<std::string, int>> by_number;
    for (int i = 0; i < 60; i++) {
        auto name = joined("item", i % 20, round % 3, 1.5);
        by_name[name]++;
        by_number[i % 17] = {std::move(name), i};
    }
    return by_name.size() + by_number.size();
}

__attribute__((noinline)) bool matched(long round) {
    static const std::regex words("(a|b)*c[0-9]+(x?y)*");
    return std::regex_search("abababc" + std::to_string(round) + "xyyxy", words);
}

__attribute__((noinline)) int thrown(int depth) {
    if (depth == 0) throw std::runtime_error("thrown");
    try {
        return thrown(depth - 1) + 1;
    } catch (const std::logic_error &) {
        return 0;
    }
}

}  // namespace

int main(int, char **arguments) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(arguments[1] ? std::atof(arguments[1]) : 1.0);
    double sum = 0;
    for (long round = 0; Clock::now() < end; round++) {
        sum += areas(round) + sorted(round) + counted(round) + matched(round);
        try {
            sum += thrown(4);
        } catch (const std::exception &) {
            sum++;
        }
    }
    return sum == 0.5;
}
