// Uses a second of CPU.
function burnLeaf(x) {
    let sum = x | 0;
    for (let i = 0; i < 20000; i++) sum = (Math.imul(sum, 31) + (sum >>> 3) + i) | 0;
    return sum;
}

function burnBranch(x) {
    let sum = 0;
    for (let i = 0; i < 50; i++) sum = (sum + burnLeaf(x + i)) | 0;
    return sum;
}

let sum = 0;
while (process.cpuUsage().user < 1e6) sum = (sum + burnBranch(sum)) | 0;
console.log(sum);
