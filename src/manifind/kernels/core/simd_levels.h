// Which of the tables of kernels, compiled for several instruction sets, is used; an extension has one table a level.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace manifind {

#if defined(MANIFIND_HAS_avx512) || defined(MANIFIND_HAS_avx2)
inline bool runs_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

inline bool runs_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif

template <class Table>
class SimdLevels {
   public:
    // `available` returns the tables that this machine can run, best first.
    constexpr explicit SimdLevels(std::vector<const Table*> (*available)()) : available_(available) {}
    const Table& current() {
        const Table* table = current_.load();
        if (!table) current_ = table = available_().front();
        return *table;
    }
    // Defines `level`, `levels` and `use_level` in a module. `this` must live as long as the module.
    void bind(nanobind::module_& m) {
        m.def("level", [this] { return current().name; });
        m.def("levels", [this] {
            nanobind::list names;
            for (const Table* table : available_()) names.append(table->name);
            return names;
        });
        m.def(
            "use_level",
            [this](const std::string& name) {
                for (const Table* table : available_())
                    if (name == table->name) {
                        current_ = table;
                        return;
                    }
                throw std::invalid_argument("this machine cannot run that level");
            },
            nanobind::arg("name"));
    }

   private:
    std::vector<const Table*> (*available_)();
    std::atomic<const Table*> current_{nullptr};
};

}  // namespace manifind
