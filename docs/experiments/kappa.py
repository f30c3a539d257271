# The constant of the automatic lambda, by experiment; about three minutes.
# From the project's root: cargo build --release -p eigenveil && python3 docs/experiments/kappa.py
import subprocess, json, math
B='target/release/eigenveil'
sig={1:5.9746,2:3.15437,4:1.68789,8:0.92339}
def run(p,s,k,n,eps,spike,kap,refit):
    sd=sig[eps]/math.sqrt(2)
    lam=kap*sd*math.sqrt(2*math.log(p*(p-1)/2)/n)
    a=[B,'simulate','--json','--model','sparse','--p',str(p),'--s',str(s),'--k',str(k),'--spike',str(spike),'--n',str(n),'--epsilon',str(eps),'--sparse','--lambda',repr(lam),'--repeats','3','--max-iterations','300']
    if refit: a.append('--refit')
    d=json.loads(subprocess.run(a,capture_output=True,text=True).stdout)
    return d
for (p,s,k,n,eps,spike) in [(200,15,3,100000,4,60),(200,15,3,100000,2,60),(200,15,3,1000000,2,20),(100,10,2,30000,4,20),(100,30,5,300000,8,20)]:
    print(p,s,k,n,eps,spike)
    for kap in (0.25,0.35,0.5,0.7,1.0):
        d=run(p,s,k,n,eps,spike,kap,True); e=run(p,s,k,n,eps,spike,kap,False)
        print('  k=%.2f refit %.3f plain %.3f pca %.3f pred %.3f P %.2f R %.2f F1 %.2f conv %d t %.1f'%(kap,d['error_mean'],e['error_mean'],d['pca_error'],d['predicted_error'] or -1,d['support_precision'],d['support_recall'],d['support_f1'],d['converged'],d['seconds']),flush=True)
