#include <pybind11/pybind11.h>

namespace py = pybind11;

void bind_kernels(py::module_& module);
void bind_nccl(py::module_& module);

PYBIND11_MODULE(_core, module) {
    module.doc() = "Native part of flodl-sys; use it through flodl_sys.kernels and flodl_sys.nccl.";
    bind_kernels(module);
    bind_nccl(module);
}
