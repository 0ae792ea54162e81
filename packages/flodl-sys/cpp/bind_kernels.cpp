// Python face of the kernels: convert, check, release the GIL, call.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "operand.h"
#include "operations.h"

namespace py = pybind11;

namespace {

using flodl::Access;
using flodl::ArgumentError;
using flodl::bf16;
using flodl::f32;
using flodl::Operand;
using flodl::Plan;

// bfloat16 has no struct code of its own: 16-bit integers carry its bits.
Operand float_operand(py::handle source, std::string name, Access access) {
    return {source, std::move(name), "f", sizeof(f32), access};
}
Operand bf16_operand(py::handle source, std::string name, Access access) {
    return {source, std::move(name), "Hh", sizeof(bf16), access};
}

Plan plan_for(const std::string& isa, std::size_t threads) {
    const flodl::Kernels* kernels = flodl::kernels_for(isa);
    if (kernels == nullptr) {
        std::string legal;
        for (const std::string& name : flodl::supported_isas())
            legal += (legal.empty() ? "" : ", ") + name;
        throw ArgumentError("isa is '" + isa + "'; this processor runs: " + legal);
    }
    if (threads < 1) throw ArgumentError("threads is 0, which computes nothing");
    return {kernels, threads};
}

template <typename Element>
void weighted_average(Operand (*operand)(py::handle, std::string, Access), bool in_place_is_fine,
                      const py::sequence& buffers, const std::vector<double>& weights,
                      const py::object& out, std::size_t threads, const std::string& isa) {
    const Plan plan = plan_for(isa, threads);
    if (buffers.size() == 0) throw ArgumentError("buffers is empty: an average needs one or more");
    if (buffers.size() != weights.size())
        throw ArgumentError("weights has " + std::to_string(weights.size()) + " values for " +
                            std::to_string(buffers.size()) + " buffers");
    const Operand result = float_operand(out, "out", Access::write);
    std::vector<Operand> held;
    std::vector<const Element*> x;
    for (std::size_t k = 0; k < buffers.size(); ++k) {
        held.push_back(operand(buffers[k], "buffers[" + std::to_string(k) + "]", Access::read));
        held.back().require_count(result);
        held.back().require_apart(result, in_place_is_fine);
        x.push_back(held.back().as<const Element>());
    }
    const py::gil_scoped_release unlocked;
    flodl::weighted_average(plan, x, weights, result.as<f32>(), result.count());
}

void weighted_average_f32(const py::sequence& buffers, const std::vector<double>& weights,
                          const py::object& out, std::size_t threads, const std::string& isa) {
    weighted_average<f32>(float_operand, true, buffers, weights, out, threads, isa);
}

void weighted_average_bf16(const py::sequence& buffers, const std::vector<double>& weights,
                           const py::object& out, std::size_t threads, const std::string& isa) {
    weighted_average<bf16>(bf16_operand, false, buffers, weights, out, threads, isa);
}

void blend(const py::object& p, const py::object& c, double alpha, std::size_t threads,
           const std::string& isa) {
    const Plan plan = plan_for(isa, threads);
    const Operand target = float_operand(p, "p", Access::write);
    const Operand center = float_operand(c, "c", Access::read);
    center.require_count(target);
    center.require_apart(target, true);
    const py::gil_scoped_release unlocked;
    flodl::blend(plan, target.as<f32>(), center.as<const f32>(), alpha, target.count());
}

void pack_bf16(const py::object& source, const py::object& out, std::size_t threads,
               const std::string& isa) {
    const Plan plan = plan_for(isa, threads);
    const Operand from = float_operand(source, "source", Access::read);
    const Operand to = bf16_operand(out, "out", Access::write);
    from.require_count(to);
    from.require_apart(to, false);
    const py::gil_scoped_release unlocked;
    flodl::pack_bf16(plan, from.as<const f32>(), to.as<bf16>(), to.count());
}

void unpack_bf16(const py::object& source, const py::object& out, std::size_t threads,
                 const std::string& isa) {
    const Plan plan = plan_for(isa, threads);
    const Operand from = bf16_operand(source, "source", Access::read);
    const Operand to = float_operand(out, "out", Access::write);
    from.require_count(to);
    from.require_apart(to, false);
    const py::gil_scoped_release unlocked;
    flodl::unpack_bf16(plan, from.as<const bf16>(), to.as<f32>(), to.count());
}

}  // namespace

void bind_kernels(py::module_& module) {
    py::register_local_exception_translator([](std::exception_ptr caught) {
        try {
            if (caught) std::rethrow_exception(caught);
        } catch (const ArgumentError& error) {
            const py::object type = py::module_::import("flodl_sys.errors").attr("KernelArgumentError");
            PyErr_SetString(type.ptr(), error.what());
        }
    });
    module.def("supported_isas", &flodl::supported_isas);
    module.def("weighted_average_f32", &weighted_average_f32, py::arg("buffers"),
               py::arg("weights"), py::arg("out"), py::arg("threads"), py::arg("isa"));
    module.def("weighted_average_bf16", &weighted_average_bf16, py::arg("buffers"),
               py::arg("weights"), py::arg("out"), py::arg("threads"), py::arg("isa"));
    module.def("blend", &blend, py::arg("p"), py::arg("c"), py::arg("alpha"),
               py::arg("threads"), py::arg("isa"));
    module.def("pack_bf16", &pack_bf16, py::arg("source"), py::arg("out"), py::arg("threads"),
               py::arg("isa"));
    module.def("unpack_bf16", &unpack_bf16, py::arg("source"), py::arg("out"), py::arg("threads"),
               py::arg("isa"));
}
