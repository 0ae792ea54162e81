// Python face of the NCCL library: convert, release the GIL, call.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>

#include "nccl_comm.h"
#include "nccl_loader.h"

namespace py = pybind11;

namespace {

using flodl::NcclComm;
using flodl::NcclFailure;
using flodl::NcclLibrary;
using flodl::NcclLoadFailure;

void raise_load_failure(const NcclLoadFailure& failure) {
    const py::module_ errors = py::module_::import("flodl_sys.errors");
    const py::object error =
        failure.symbol.empty()
            ? errors.attr("NcclNotFoundError")(failure.what())
            : errors.attr("NcclSymbolError")(failure.what(), py::arg("symbol") = failure.symbol);
    PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
}

void raise_failure(const NcclFailure& failure) {
    const py::object type = py::module_::import("flodl_sys.errors").attr("NcclCallError");
    const py::object error =
        type(failure.what(), py::arg("call") = failure.call, py::arg("code") = failure.code,
             py::arg("hint") = "NCCL_DEBUG=INFO in the environment makes NCCL say more");
    PyErr_SetObject(type.ptr(), error.ptr());
}

}  // namespace

void bind_nccl(py::module_& module) {
    py::register_local_exception_translator([](std::exception_ptr caught) {
        try {
            if (caught) std::rethrow_exception(caught);
        } catch (const NcclLoadFailure& failure) {
            raise_load_failure(failure);
        } catch (const NcclFailure& failure) {
            raise_failure(failure);
        }
    });
    module.attr("NCCL_SONAME") = flodl::nccl_soname;
    py::class_<NcclComm>(module, "NcclComm")
        .def("all_reduce", &NcclComm::all_reduce, py::arg("data"), py::arg("count"),
             py::arg("dtype"), py::arg("op"), py::arg("stream"),
             py::call_guard<py::gil_scoped_release>())
        .def("broadcast", &NcclComm::broadcast, py::arg("data"), py::arg("count"),
             py::arg("dtype"), py::arg("root"), py::arg("stream"),
             py::call_guard<py::gil_scoped_release>())
        .def("async_error", &NcclComm::async_error, py::call_guard<py::gil_scoped_release>())
        .def("abort", &NcclComm::abort, py::call_guard<py::gil_scoped_release>())
        .def("close", &NcclComm::close, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("is_open", &NcclComm::is_open);
    py::class_<NcclLibrary>(module, "NcclLibrary")
        .def_static("open", &NcclLibrary::open, py::arg("path"),
                    py::call_guard<py::gil_scoped_release>())
        .def_static("already_loaded", &NcclLibrary::already_loaded)
        .def_property_readonly("path", &NcclLibrary::path)
        .def("version", &NcclLibrary::version, py::call_guard<py::gil_scoped_release>())
        .def("unique_id", [](const NcclLibrary& library) {
            const auto id = [&library] {
                const py::gil_scoped_release unlocked;
                return library.unique_id();
            }();
            return py::bytes(id.data(), id.size());
        })
        .def("group_start", &NcclLibrary::group_start, py::call_guard<py::gil_scoped_release>())
        .def("group_end", &NcclLibrary::group_end, py::call_guard<py::gil_scoped_release>())
        .def(
            "init_all",
            [](const NcclLibrary& library, const std::vector<int>& devices) {
                const py::gil_scoped_release unlocked;
                return NcclComm::init_all(library, devices);
            },
            py::arg("devices"))
        .def(
            "init_rank",
            [](const NcclLibrary& library, int size, const py::bytes& unique_id, int rank) {
                const std::string id = unique_id;
                const py::gil_scoped_release unlocked;
                return NcclComm::init_rank(library, size, id, rank);
            },
            py::arg("size"), py::arg("unique_id"), py::arg("rank"));
}
